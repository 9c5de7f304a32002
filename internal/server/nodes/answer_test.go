package nodes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/wire"
)

// If an answer is too large, the error also names the nodes whose exports are in the answer.
func TestAnAnswerThatIsTooLargeNamesWhoFillsIt(t *testing.T) {
	var exports []tutti.Export
	for i := range 5 {
		for range i + 1 {
			e := tutti.Export{Type: "Database", Title: "x", Parameters: map[string]json.RawMessage{}}
			e.Node, e.Parameters["x"] = tutti.NodeName(fmt.Sprintf("n%d", i)), json.RawMessage(strings.Repeat("1", 1000))
			exports = append(exports, e)
		}
	}
	err := nodes.TooLarge(70_000_000, exports)
	wantCode(t, err, tutti.CodeInternal, "the answer has 70000000 bytes, at most 67108864; of 15 exports from 5 nodes, the largest are those of n4 (5050 bytes), n3 (4040 bytes), n2 (3030 bytes)")
	wantCode(t, nodes.TooLarge(70_000_000, nil), tutti.CodeInternal, "at most 67108864")
}

func wantCode(t *testing.T, err error, code tutti.Code, says string) {
	t.Helper()
	if tutti.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("error %v (code %q), want code %q and %q in it", err, tutti.CodeOf(err), code, says)
	}
}

// mib returns this many exports of almost one MiB each.
func mib(count int) []tutti.Export {
	text := json.RawMessage(`"` + strings.Repeat("x", 1<<20-100) + `"`)
	var out []tutti.Export
	for i := range count {
		out = append(out, tutti.Export{Type: "Database", Title: fmt.Sprint(i), Parameters: map[string]json.RawMessage{"x": text}})
	}
	return out
}

// The server refuses an answer that is too large for the bus. Without the refusal the node would wait
// without end.
func TestAnAnswerThatNobodyCanPayForIsRefused(t *testing.T) {
	wantCode(t, nodes.CheckAnswer(&wire.Answer{Exports: mib(65)}), tutti.CodeInternal, "at most 67108864")
	wantCode(t, nodes.CheckAnswer(&wire.Answer{Exports: mib(64)}), "", "")
}
