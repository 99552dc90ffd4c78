package compose

// merge gives RFC 7396's MergePatch(target, patch) of two canonical texts, in canonical
// form. Members of both are sorted, so they are read side by side like the runs of a merge
// sort, and whole members are copied.
func merge(target, patch []byte) []byte {
	dst := make([]byte, 0, len(target)+len(patch))
	return mergeValue(dst, &cursor{text: target}, &cursor{text: patch})
}

// mergeValue consumes one value of each cursor.
func mergeValue(dst []byte, target, patch *cursor) []byte {
	if patch.peek() != '{' {
		target.value()
		return append(dst, patch.value()...)
	}
	if target.peek() != '{' {
		target.value()
		target = absent()
	}
	return mergeObject(dst, target, patch)
}

// absent is what a patch merges with where the target has no object; members that are null
// are thereby stripped of a patch at any depth.
func absent() *cursor { return &cursor{text: []byte("{}")} }

func mergeObject(dst []byte, target, patch *cursor) []byte {
	dst = append(dst, '{')
	t, p := target.member(), patch.member()
	for t != nil || p != nil {
		order := compareMembers(t, p)
		switch {
		case order < 0:
			dst = append(appendName(dst, t), target.value()...)
		case patch.peek() == 'n': // null removes
			patch.value()
			if order == 0 {
				target.value()
			}
		case order == 0:
			dst = mergeValue(appendName(dst, t), target, patch)
		default:
			dst = mergeValue(appendName(dst, p), absent(), patch)
		}
		if order <= 0 {
			t = target.member()
		}
		if order >= 0 {
			p = patch.member()
		}
	}
	return append(dst, '}')
}

// appendName separates members by a comma; no value ends with the brace that opens one.
func appendName(dst, name []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(dst, name...), ':')
}

// compareMembers sorts the end of an object behind all names.
func compareMembers(t, p []byte) int {
	switch {
	case t == nil:
		return 1
	case p == nil:
		return -1
	}
	return compareNames(t, p)
}
