package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTargets(t *testing.T) {
	const (
		updates  = "Label: Debian\nComponent: main\nRelease: bookworm-updates\nRepo-URI: http://updates.example/debian/\n\n"
		security = "Label: Debian-Security\nComponent: main\nRelease: bookworm-security\nRepo-URI: http://security.example/\nSigned-By: /etc/apt/keyrings/own.gpg\n\n"
		main     = "Label: Debian\nComponent: main\nRelease: bookworm\nRepo-URI: http://main.example/debian/\nSigned-By: /etc/apt/keyrings/own.gpg\n\n"
		contrib  = "Label: Debian\nComponent: contrib\nRelease: bookworm\nRepo-URI: http://contrib.example/\n\n"
		foreign  = "Label: Node\nComponent: main\nRelease: nodistro\nRepo-URI: http://node.example/\n\n"
		unread   = "Component: main\nRelease: trixie\nRepo-URI: http://main.example/debian/\nSigned-By: /etc/apt/keyrings/own.gpg\n\n"
		unknown  = "Component: main\nRelease: noble\nRepo-URI: http://ubuntu.example/\n\n"
	)
	mainArchive := archive{uri: "http://main.example/debian/", keyring: "/etc/apt/keyrings/own.gpg"}
	securityArchive := archive{uri: "http://security.example/", keyring: "/etc/apt/keyrings/own.gpg", security: true}
	tests := map[string]struct {
		reason, out string
		want        []archive
	}{
		"all":       {"main comes first, others' archives are left out", foreign + updates + security + contrib + main, []archive{mainArchive, securityArchive}},
		"unread":    {"before the first update apt knows no labels", unread, []archive{mainArchive}},
		"no Debian": {"another distribution has no archive for hosts", unknown + foreign, nil},
		"empty":     {"nothing configured", "", nil},
		"no end":    {"the last stanza counts without an empty line after it", main[:len(main)-1], []archive{mainArchive}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parseTargets([]byte(tt.out)), cmp.AllowUnexported(archive{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func TestSources(t *testing.T) {
	got := sources([]archive{{uri: "http://m/"}, {uri: "http://s/", security: true}}, "trixie")
	want := "deb http://m/ trixie main\ndeb http://m/ trixie-updates main\ndeb http://s/ trixie-security main\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sources.list: -want +got\n%s", diff)
	}
}

func TestProxyEnv(t *testing.T) {
	got := proxyEnv("Acquire::Check-Date \"false\";\nAcquire::http::Proxy \"http://cache:3142\";\n")
	if diff := cmp.Diff([]string{"http_proxy=http://cache:3142"}, got); diff != "" {
		t.Errorf("debootstrap fetches through apt's proxy: -want +got\n%s", diff)
	}
}
