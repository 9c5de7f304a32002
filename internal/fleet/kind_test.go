package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// If a plan has a step from a later release, the text shows the name of its kind.
func TestRenderAKindOfALaterRelease(t *testing.T) {
	var p tutti.Plan
	raw := `{"name":"up","steps":[{"name":"kernel","timeout":0,"reboot":{"target":"web"}},{"name":"nothing","timeout":0}]}`
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		t.Fatal(err)
	}
	got := fleet.Render(p, nil)
	for _, want := range []string{"kernel   -      reboot (not known to this release)", "nothing  -      nothing"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
