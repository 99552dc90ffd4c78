package decide

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit/shuffled"
)

// tables are all rule tables of this package. All of its tests decide with predicates that are evaluated in a random order.
var tables = map[string]any{
	"absenceRules": absenceRules, "copyRules": copyRules, "deploymentRules": deploymentRules, "digestRules": digestRules, "drainRules": drainRules,
	"failoverRules": failoverRules, "fleetRules": fleetRules, "fleetStartRules": fleetStartRules, "instanceRules": instanceRules,
	"linkRules": linkRules, "memberRules": memberRules, "operationRules": operationRules, "ownerRules": ownerRules, "planRules": planRules,
	"pollRules": pollRules, "releaseRules": releaseRules, "replicaRules": replicaRules, "rollbackRules": rollbackRules,
	"rolloutRules": rolloutRules, "stagedRules": stagedRules, "syncedCopyRules": syncedCopyRules, "syncedRules": syncedRules,
	"unlistedRules": unlistedRules,
}

var _ = shuffled.Rules(slices.Collect(maps.Values(tables))...)

// No table is left out.
func TestAllRulesAreShuffled(t *testing.T) {
	t.Parallel()
	table := regexp.MustCompile(`(?m)^var (\w+) = \[\]struct \{\n(?:\t[^\n]*\n)*?\twhen +func`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range table.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, tables, m[1], "list the table of %s", name)
			found++
		}
	}
	require.Len(t, tables, found)
}
