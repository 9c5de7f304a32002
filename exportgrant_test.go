package tutti_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

func TestExportGrantDangers(t *testing.T) {
	for _, tc := range []struct {
		grant     tutti.ExportGrant
		dangerous bool
	}{
		{tutti.ExportGrant{Type: "Sshkey"}, false},
		{tutti.ExportGrant{Type: "Sshkey", Parameters: []string{"key"}}, false},
		{tutti.ExportGrant{Type: "Sshkey", Parameters: []string{"key", "target"}}, true},
		{tutti.ExportGrant{Type: "Service"}, true},
		{tutti.ExportGrant{Type: "Vcsrepo"}, true},
		{tutti.ExportGrant{Type: "Nagios_host"}, true},
		{tutti.ExportGrant{Type: "Database", Defined: true}, false},
		{tutti.ExportGrant{Type: "Haproxy::Balancermember"}, false},
	} {
		if got := tc.grant.Dangers() != ""; got != tc.dangerous {
			t.Errorf("%s: dangerous %t, want %t", tc.grant, got, tc.dangerous)
		}
	}
	for _, name := range []string{"Host", "Notify", "Ring_object_device", "Sshkey", "Service", "Exec"} {
		if !(tutti.ExportGrant{Type: name}).Native() {
			t.Errorf("%s is taken for a defined type", name)
		}
	}
}

func TestGrantString(t *testing.T) {
	for want, g := range map[string]tutti.Grant{
		`{to: db, exports: [Sshkey, {type: A, defined: true, most: 3, most_mib: 20}], write: ["db/**"], dangerous: true}`: {
			To: "db", Types: []tutti.ExportGrant{{Type: "Sshkey"}, {Type: "A", Defined: true, Most: 3, MostMiB: 20}}, Write: []string{"db/**"}, Dangerous: true,
		},
		`{to: x, exports: [{type: B::C, parameters: [a, b], title: own, tags: ["t"], relations: false}], read: ["a"], compile: true}`: {
			To: "x", Types: []tutti.ExportGrant{{Type: "B::C", Parameters: []string{"a", "b"}, OwnTitle: true, Tags: []string{"t"}, NoRelations: true}},
			Read: []string{"a"}, Compile: true,
		},
	} {
		if got := g.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
