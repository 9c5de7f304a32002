package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
)

var swift = tutti.Fleet{Groups: []tutti.Group{
	{Name: "all", Nodes: []tutti.NodeName{"db-01", "web-01", "web-02"}},
	{Name: "any"},
	{Name: "db", Nodes: []tutti.NodeName{"db-01"}},
	{Name: "web", Nodes: []tutti.NodeName{"db-01", "web-01"}},
}, Grants: []tutti.Grant{
	{To: "storage", Types: []tutti.ExportGrant{{Type: "Ring_object_device"}, {Type: "File"}}},
	{To: "ringbuilder", Write: []string{"swift/rings/**", "node/web/**"}, Types: []tutti.ExportGrant{{Type: "Swift::Ringsync"}}},
	{To: "reader", Read: []string{"swift/rings/**"}},
	{To: "trusted", Write: []string{"**"}, Types: []tutti.ExportGrant{{Type: "File"}}, Dangerous: true},
}}

// mayExport checks the export of a resource of this type.
func mayExport(f tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, name string) error {
	return policy.ExportsOf(f, groups, node).May(tutti.Export{Type: name, Title: "x"})
}

type check func(tutti.Fleet, []tutti.GroupName, tutti.NodeName, string) error

func TestPolicy(t *testing.T) {
	for _, tc := range []struct {
		reason string
		check  check
		node   tutti.NodeName
		groups []tutti.GroupName
		what   string
		want   string // the refusal; empty if the action is allowed
	}{
		{"a node writes its own keys", policy.MayWrite, "web", nil, "node/web/hiera/port", ""},
		{"a dotted name is no prefix", policy.MayWrite, "web", nil, "node/web.example.net/x",
			`node "web" (in no group) may not write "node/web.example.net/x": no grant; to allow this, add to the grants of the fleet file: - {to: GROUP, write: ["node/web.example.net/x"], dangerous: true}`},
		{"nor is a longer name's beginning", policy.MayWrite, "web.example.net", nil, "node/web/x",
			`node "web.example.net" (in no group) may not write "node/web/x": no grant; to allow this, add to the grants of the fleet file: - {to: GROUP, write: ["node/web/x"], dangerous: true}`},
		{"shared is for operators", policy.MayWrite, "web", []tutti.GroupName{"storage"}, "shared/hiera/port",
			`node "web" (in storage) may not write "shared/hiera/port": no grant; to allow this, add to the grants of the fleet file: - {to: storage, write: ["shared/hiera/port"], dangerous: true}`},
		{"a grant adds a path", policy.MayWrite, "proxy-01", []tutti.GroupName{"proxy", "ringbuilder"}, "swift/rings/object", ""},
		{"and not what is beside it", policy.MayWrite, "proxy-01", []tutti.GroupName{"ringbuilder", "proxy"}, "swift/ring",
			`node "proxy-01" (in proxy, ringbuilder) may not write "swift/ring": no grant; to allow this, add to the grants of the fleet file: - {to: proxy, write: ["swift/ring"]} ` +
				`(proxy is its smallest group; "tutti grants suggest" chooses groups for all nodes that lack a grant)`},
		{"a grant to others is none", policy.MayWrite, "storage-01", []tutti.GroupName{"storage"}, "swift/rings/object",
			`node "storage-01" (in storage) may not write "swift/rings/object": no grant; to allow this, add to the grants of the fleet file: - {to: storage, write: ["swift/rings/object"]}`},
		{"a grant to read is none to write", policy.MayWrite, "r", []tutti.GroupName{"reader"}, "swift/rings/object",
			`node "r" (in reader) may not write "swift/rings/object": no grant; to allow this, add to the grants of the fleet file: - {to: reader, write: ["swift/rings/object"]}`},
		{"other nodes' data needs the word", policy.MayWrite, "proxy-01", []tutti.GroupName{"ringbuilder"}, "node/web/hiera/x",
			`node "proxy-01" (in ringbuilder) may not write "node/web/hiera/x": no grant; to allow this, add to the grants of the fleet file: - {to: ringbuilder, write: ["node/web/hiera/x"], dangerous: true}`},
		{"and is granted with it", policy.MayWrite, "admin", []tutti.GroupName{"trusted"}, "node/web/hiera/x", ""},

		{"everybody reads shared keys", policy.MayRead, "web", nil, "shared/hiera/port", ""},
		{"a node reads its own keys", policy.MayRead, "web", nil, "node/web/x", ""},
		{"not those of others", policy.MayRead, "web", nil, "node/web.example.net/x",
			`node "web" (in no group) may not read "node/web.example.net/x": no grant; to allow this, add to the grants of the fleet file: - {to: GROUP, read: ["node/web.example.net/x"]}`},
		{"a grant lets read", policy.MayRead, "r", []tutti.GroupName{"reader"}, "swift/rings/object", ""},
		{"what one may write one may read", policy.MayRead, "proxy-01", []tutti.GroupName{"ringbuilder"}, "swift/rings/object", ""},
		{"anything else is closed", policy.MayRead, "storage-01", []tutti.GroupName{"storage"}, "swift/rings/object",
			`node "storage-01" (in storage) may not read "swift/rings/object": no grant; to allow this, add to the grants of the fleet file: - {to: storage, read: ["swift/rings/object"]}`},

		{"exports need a grant", mayExport, "web", nil, "Ring_object_device",
			`node "web" (in no group) may not export resources of type Ring_object_device: no grant; to allow this, add to the grants of the fleet file: - {to: GROUP, exports: [Ring_object_device]}`},
		{"a grant adds a type", mayExport, "storage-01", []tutti.GroupName{"storage"}, "Ring_object_device", ""},
		{"and only that one", mayExport, "storage-01", []tutti.GroupName{"storage"}, "Swift::Ringsync",
			`node "storage-01" (in storage) may not export resources of type Swift::Ringsync: no grant; to allow this, add to the grants of the fleet file: - {to: storage, exports: [Swift::Ringsync]}`},
		{"root types need the word, also if listed", mayExport, "storage-01", []tutti.GroupName{"storage"}, "File",
			`node "storage-01" (in storage) may not export File[x]: anyone who can export File becomes root on every node that collects it: it takes ` + "`dangerous: true`" + `; to allow this, add to the grants of the fleet file: - {to: storage, exports: [File], dangerous: true}`},
		{"and are granted with it", mayExport, "admin", []tutti.GroupName{"trusted"}, "File", ""},
		{"of its groups the one with the fewest nodes is named", mayExport, "db-01", []tutti.GroupName{"all", "db", "web"}, "Database",
			`node "db-01" (in all, db, web) may not export resources of type Database: no grant; to allow this, add to the grants of the fleet file: - {to: db, exports: [Database], dangerous: true} ` +
				`(if your Puppet code defines the type: exports: [{type: Database, defined: true}], without dangerous) (db is its smallest group; "tutti grants suggest" chooses groups for all nodes that lack a grant)`},
		{"a group that nodes join may have any number", policy.MayRead, "db-01", []tutti.GroupName{"any", "web"}, "x",
			`node "db-01" (in any, web) may not read "x": no grant; to allow this, add to the grants of the fleet file: - {to: web, read: ["x"]} ` +
				`(web is its smallest group; "tutti grants suggest" chooses groups for all nodes that lack a grant)`},
	} {
		err := tc.check(swift, tc.groups, tc.node, tc.what)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if err != nil && tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s: code %q, want refused", tc.reason, tutti.CodeOf(err))
		}
	}
}

// TestPasteAllows adds the suggested line to a fleet file. The file must be valid, and must allow the refused action.
func TestPasteAllows(t *testing.T) {
	groups := []tutti.GroupName{"storage"}
	for _, tc := range []struct {
		reason string
		check  check
		what   string
	}{
		{"a key", policy.MayWrite, "swift/rings/object"},
		{"a hiera key with colons", policy.MayRead, "swift/hiera/swift::port"},
		{"another node's data", policy.MayWrite, "node/web.example.net/x"},
		{"a type", mayExport, "Swift::Ringsync"},
		{"a dangerous type", mayExport, "Exec"},
	} {
		refusal := tc.check(tutti.Fleet{}, groups, "storage-01", tc.what)
		if refusal == nil {
			t.Fatalf("%s: allowed without a grant", tc.reason)
		}
		_, line, _ := strings.Cut(refusal.Error(), "fleet file: ")
		f, err := fleet.Parse("tutti.yaml", []byte("fleet: x\ngroups: {storage: {nodes: [storage-01]}}\ngrants:\n  "+line+"\n"))
		if err != nil {
			t.Errorf("%s: the proposed grant is refused: %v", tc.reason, err)
			continue
		}
		if err := tc.check(f, groups, "storage-01", tc.what); err != nil {
			t.Errorf("%s: the proposed grant does not allow it: %v", tc.reason, err)
		}
	}
}
