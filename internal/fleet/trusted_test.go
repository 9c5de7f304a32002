package fleet_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// TestGroupsByCertificate checks which nodes a condition over the certificate puts into a group. A node without a
// certificate, or without an extension that the condition needs, is not in the group. A token cannot name such a group.
func TestGroupsByCertificate(t *testing.T) {
	f, err := fleet.Parse("f", []byte(`
fleet: x
groups:
  web: {trusted: 'trusted.pp_role == "web" && certname.endsWith(".example.net")'}
  other: {trusted: 'trusted.pp_role != "web"'}
  zone: {trusted: '"pp_zone" in trusted'}
  roles: {trusted: 'trusted.exists(k, k.startsWith("pp_") && trusted[k].startsWith("cache-"))'}
  private: {trusted: 'trusted["1.3.6.1.4.1.34380.1.2.1.0.7"] == "a"'}
  named: {joined: true}
  listed: {nodes: [a.example.net]}
grants:
  - {to: web, write: [web/**]}
`))
	if err != nil {
		t.Fatal(err)
	}
	m := fleet.NewMembership(f)
	for _, tc := range []struct {
		reason     string
		node       tutti.NodeName
		extensions map[string]string
		token      []tutti.GroupName
		want       []tutti.GroupName
	}{
		{"fits", "a.example.net", map[string]string{"pp_role": "web"}, nil, []tutti.GroupName{"listed", "web"}},
		{"another name", "a", map[string]string{"pp_role": "web", "pp_zone": "1"}, nil, []tutti.GroupName{"zone"}},
		{"another role", "a", map[string]string{"pp_role": "db"}, nil, []tutti.GroupName{"other"}},
		{"no extension", "a", map[string]string{}, []tutti.GroupName{"named"}, []tutti.GroupName{"named"}},
		{"the token names the group", "a", map[string]string{}, []tutti.GroupName{"web", "listed"}, nil},
	} {
		certificate := &tutti.NodeCertificate{Extensions: tc.extensions}
		got := m.GroupsOf(tc.node, tc.token, m.Trusted(tc.node, certificate))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
	if diff := cmp.Diff([]tutti.GroupName{"roles"}, m.Trusted("a", &tutti.NodeCertificate{Extensions: map[string]string{"pp_zone1": "x", "pp_product": "cache-12"}})); diff != "" {
		t.Errorf("a macro: -want +got\n%s", diff)
	}
	if got := m.Trusted("a.example.net", nil); got != nil {
		t.Errorf("without a certificate: %v", got)
	}
	for source, want := range map[string]string{
		`{trusted: 'facts.role == "web"'}`:                                             "f:2: group web: trusted: line 1, character 1 of the condition: undeclared reference to 'facts' (like 'trusted.pp_role",
		`{trusted: 'trusted.pp_rol == "web"'}`:                                         `f:2: group web: trusted: unknown extension "pp_rol", no certificate can have it (did you mean "pp_role"?)`,
		`{trusted: '!has(trusted.pp_rol)'}`:                                            `unknown extension "pp_rol"`,
		`{trusted: '!("1.2.3" in trusted)'}`:                                           `unknown extension "1.2.3"`,
		`{trusted: 'trusted["1.3.6.1.4.1.34380.1.1.13"] == "web"'}`:                    `write pp_role instead of "1.3.6.1.4.1.34380.1.1.13"`,
		`{trusted: 'trusted.pp_preshared_key == "x"'}`:                                 `extension "pp_preshared_key" can be a secret`,
		`{trusted: 'trusted["1.3.6.1.4.1.34380.1.1.4"] == "x"'}`:                       `can be a secret`,
		`{trusted: 'certname.matches("[")'}`:                                           "invalid matches argument",
		"{trusted: '" + strings.Repeat("[", 60) + strings.Repeat("]", 60) + " == []'}": "the condition: expression recursion limit",
		`{trusted: 'trusted.exists(k, trusted.exists(j, trusted[k] == trusted[j]))'}`:  "can cost 463234 operations for each node, at most 2000",
		`{}`:                              "or write `trusted: CONDITION` or",
		`{trusted: trusted.pp_role}`:      "the condition is a string, and must be true or false",
		`{trusted: 'true', nodes: [a]}`:   "exactly one of `nodes`, `joined`, `trusted` and `where`",
		`{trusted: 'true', joined: true}`: "exactly one of `nodes`, `joined`, `trusted` and `where`",
		"{trusted: '" + strings.Repeat(" ", 5000) + "true'}": "at most 4096",
	} {
		_, err := fleet.Parse("f", []byte("fleet: x\ngroups: {web: "+source+"}\n"))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", source, err, want)
		}
	}
}

// TestGroupsAreTheSameEachTime checks conditions that see the order of the extensions. Each evaluation has the same answer,
// because servers and restarts that disagree would give a node other grants.
func TestGroupsAreTheSameEachTime(t *testing.T) {
	extensions := map[string]string{}
	for i := range 20 {
		extensions[fmt.Sprintf("e%02d", i)] = strconv.Itoa(i)
	}
	for _, tc := range []struct{ reason, condition string }{
		{"the first value", `trusted.map(k, trusted[k])[0] == "0"`},
		{"the last of some", `trusted.filter(k, k != "e19")[18] == "e18"`},
		{"what does not see the order", `size(trusted) == 20 && has(trusted.e03) && "e04" in trusted && {"e": trusted} == {"e": trusted}`},
		{"cost that depends on the order", `trusted.exists(k, k == "e00" || ` + strings.Repeat("[1,2,3,4,5,6,7,8,9].all(x, ", 4) + "x > 0" + strings.Repeat(")", 4) + ")"},
	} {
		m := fleet.NewMembership(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Trusted: tc.condition}}})
		for range 50 {
			if got := m.Trusted("a", &tutti.NodeCertificate{Extensions: extensions}); len(got) != 1 {
				t.Errorf("%s: %v, want the group", tc.reason, got)
				break
			}
		}
	}
}
