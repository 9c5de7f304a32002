package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// TestJoinRules reads rules by which machines join, and checks which rule fits a certificate.
func TestJoinRules(t *testing.T) {
	f, err := fleet.Parse("f", []byte(`
fleet: x
groups:
  web: {joined: true, remove_after: 24h}
  listed: {nodes: [db-01]}
join:
  - {certname: "web-*", extensions: {pp_role: "w*", 1.3.6.1.4.1.34380.1.2.1: a/b}, groups: web}
  - {certname: "*", extensions: {pp_role: "*"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []tutti.JoinRule{
		{Certname: "web-*", Extensions: map[string]string{"pp_role": "w*", "1.3.6.1.4.1.34380.1.2.1": "a/b"}, Groups: []tutti.GroupName{"web"}},
		{Certname: "*", Extensions: map[string]string{"pp_role": "*"}},
	}
	if diff := cmp.Diff(want, f.Join); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := f.Groups[0].RemoveAfter; got != 24*time.Hour {
		t.Errorf("remove_after is %s", got)
	}
	for _, tc := range []struct {
		name       tutti.NodeName
		extensions map[string]string
		rule       string
	}{
		{"web-01", map[string]string{"pp_role": "web", "1.3.6.1.4.1.34380.1.2.1": "a/b", "pp_zone": "1"}, "web-*"},
		{"web-01", map[string]string{"pp_role": "web/a"}, "*"},
		{"web-01", nil, ""},
	} {
		rule, fits := f.JoinRuleFor(tc.name, tc.extensions)
		if rule.Certname != tc.rule || fits != (tc.rule != "") {
			t.Errorf("%s with %v: rule %q, want %q", tc.name, tc.extensions, rule.Certname, tc.rule)
		}
	}
}

func TestWrongJoinRules(t *testing.T) {
	for source, want := range map[string]string{
		"join: [{groups: web}]":                             "f:4: join: the certname is missing",
		`join: [{certname: "["}]`:                           `f:4: join: certname: "[" is not a pattern`,
		`join: [{certname: a, extensions: {pp_role: "["}}]`: `f:4: join: extensions: pp_role: "[" is not a pattern`,
		`join: [{certname: a, extensions: {pp_rol: "x"}}]`:  `f:4: join: extensions: unknown extension "pp_rol", no certificate can have it (did you mean "pp_role"?`,
		"join: [{certname: a, groups: [listed]}]":           "f:4: join: groups: no group \"listed\" with `joined: true`",
		"join: [{certname: a, group: web}]":                 `f:4: join: unknown key "group" (did you mean "groups"?)`,
		"join: {certname: a}":                               "f:4: join: a list needed, got a mapping",
	} {
		_, err := fleet.Parse("f", []byte("fleet: x\n\ngroups: {web: {joined: true}, listed: {nodes: [a-1]}}\n"+source+"\n"))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
	for group, want := range map[string]string{
		"{joined: true, remove_after: 9m}":  "group web: remove_after: 9m; allowed are 10m to 8760h",
		"{nodes: [a-1], remove_after: 24h}": "group web: remove_after needs `joined: true`",
	} {
		_, err := fleet.Parse("f", []byte("fleet: x\ngroups: {web: "+group+"}\n"))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", group, err, want)
		}
	}
}
