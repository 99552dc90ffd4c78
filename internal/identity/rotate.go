package identity

// A node changes its key in steps that may be repeated after a kill at any of them:
//
//	Renewed   makes the next half; saved before anybody hears of it
//	(the region takes the next half, in a request signed by the present one)
//	Next      is the key that signs by the next half; its first use voids the old one
//	Confirmed has the next half only; saved once the region answered a request signed by it
//
// Until Confirmed both halves are in the file, so whichever of them the region knows, the
// node has it.

// Renewed gives the key with a next half: the one that it has already, or a new one.
func (k Key) Renewed() (Key, error) {
	if k.next != nil {
		return k, nil
	}
	h, err := generate()
	if err != nil {
		return k, err
	}
	k.next = &h
	return k, nil
}

// Changing says that there is a next half which no region has confirmed yet.
func (k Key) Changing() bool { return k.next != nil }

// Next gives the key that signs by the next half, and still opens what was sealed to any.
func (k Key) Next() Key {
	if k.next == nil {
		return k
	}
	out := k
	sealed := k.sealing
	out.half, out.retired, out.next = *k.next, &sealed, nil
	return out
}

// Confirmed gives the key as it is after the region has seen the next half used. What the
// region sealed before that is still on its way: the old sealing key stays until the next
// change, the old signing key does not.
func (k Key) Confirmed() Key { return k.Next() }

// Unchanged gives the key without a next half, for a region that wants none.
func (k Key) Unchanged() Key { k.next = nil; return k }

// Same says that two keys sign alike.
func (k Key) Same(other Key) bool { return k.signing.Equal(other.signing) }
