package fleet_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// The fleet file decides whether the ENC may name the environment of a node, and a group counts more.
func TestTheFleetFileLetsTheENCNameTheEnvironment(t *testing.T) {
	canary := &tutti.Classification{Environment: "canary"}
	for _, tc := range []struct {
		reason, environment string
		groups              []tutti.GroupName
		answer              *tutti.Classification
		want                string
	}{
		{"it may", "{name: production, enc: true}", []tutti.GroupName{"web"}, canary, "canary"},
		{"it may, and names none", "{name: production, enc: true}", nil, &tutti.Classification{}, "production"},
		{"it may, and has not answered", "{name: production, enc: true}", nil, nil, "production"},
		{"it may not", "{name: production}", nil, canary, "production"},
		{"a group names one", "{name: production, enc: true}", []tutti.GroupName{"testers"}, canary, "testing"},
		{"a Puppet Server chooses", "{name: production, enc: true}", []tutti.GroupName{"old"}, canary, ""},
	} {
		f, err := fleet.Parse("f", []byte("fleet: x\nenvironment: "+tc.environment+"\ngroups:\n  web: {joined: true}\n  testers: {joined: true, environment: testing}\n  old: {joined: true, mode: agent}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.EnvironmentFor(tc.groups, tc.answer); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
	for source, says := range map[string]string{
		"environment: {name: production, enc: false}":  "f:2: environment: enc: only the value true is allowed here",
		"environments: {canary: {path: x, enc: true}}": `"enc"`,
	} {
		if _, err := fleet.Parse("f", []byte("fleet: x\n"+source+"\n")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", source, err, says)
		}
	}
}
