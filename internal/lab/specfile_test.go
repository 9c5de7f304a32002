package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSpec(t *testing.T) {
	tests := map[string]struct {
		reason string
		text   string
		want   Spec
	}{
		"names": {
			"hosts may be a plain list",
			"lab: swift\npackages: [rsync]\nenabled: [\"swift-*\"]\ncached_facts: [augeas]\nhosts: [storage-01, proxy-01]\n",
			Spec{
				Name:       "swift",
				Definition: Definition{Packages: []string{"rsync"}, Enabled: []string{"swift-*"}, CachedFacts: []string{"augeas"}},
				Hosts:      []HostSpec{{Name: "storage-01"}, {Name: "proxy-01"}},
			},
		},
		"own": {
			"a host may have what the others have not, in the order of the file",
			"lab: mixed\ndomain: example.net\nrelease: bookworm\nbinds: ['.:/srv/code']\nhosts:\n  new: {release: trixie, packages: [curl], aliases: [www.example.net]}\n  old:\n",
			Spec{
				Name: "mixed", Domain: "example.net", Definition: Definition{Release: "bookworm"},
				Binds: []Bind{{Source: "/", Destination: "/srv/code", ReadOnly: true}},
				Hosts: []HostSpec{{Name: "new", Release: "trixie", Packages: []string{"curl"}, Aliases: []string{"www.example.net"}}, {Name: "old"}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSpec("lab.yaml", "/", []byte(tt.text))
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

// TestPrepare reads a script with a path that is relative to the lab file.
func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	const script = "echo prepared > /etc/motd\n"
	for name, text := range map[string]string{"lab.yaml": "lab: a\nhosts:\n  b: {prepare: b.sh}\n  c:\n", "b.sh": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := ReadSpec(filepath.Join(dir, "lab.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got []Preparation
	for _, h := range spec.Hosts {
		got = append(got, spec.definition(h).Preparation)
	}
	if diff := cmp.Diff([]Preparation{{Script: script, Names: []string{"b.a.test", "b"}}, {}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := os.Truncate(filepath.Join(dir, "b.sh"), 0); err != nil {
		t.Fatal(err)
	}
	const want = `lab.yaml:3: prepare "b.sh": the file has 0 bytes, but must have from 1 to 65536`
	if _, err := ReadSpec(filepath.Join(dir, "lab.yaml")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an empty script would be no preparation: %v, want %s", err, want)
	}
}

func TestParseSpecErrors(t *testing.T) {
	tests := map[string]struct{ reason, text, want string }{
		"empty":      {"an empty file says what is needed", "", "lab.yaml:1: the file is empty: it needs `lab: NAME` and `hosts: [NAME, ...]`"},
		"syntax":     {"the parser's own error keeps its line", "lab: [\n", "lab.yaml: line 1: did not find expected node content"},
		"unknown":    {"an unknown key names the known ones", "lab: a\nhost: [b]\n", `lab.yaml:2: unknown key "host" in a lab file: the known keys are binds, cached_facts, domain, enabled, hosts, lab, mirror, packages, release`},
		"own key":    {"also inside a host", "lab: a\nhosts:\n  b:\n    package: [c]\n", `lab.yaml:4: unknown key "package" in a host: the known keys are aliases, packages, prepare, release`},
		"twice":      {"a repeated key says where it was first", "lab: a\nhosts: [b]\nlab: c\n", `lab.yaml:3: key "lab" is already on line 1`},
		"no list":    {"a word where a list belongs", "lab: a\npackages: rsync\nhosts: [b]\n", "lab.yaml:2: want a list here, like [one, two]"},
		"null name":  {"a key without a value", "lab:\nhosts: [b]\n", "lab.yaml:1: want one word here"},
		"lab name":   {"a name that would leave the state directory", "lab: ../etc\nhosts: [b]\n", `lab.yaml:1: lab name "../etc": use only lower-case letters, digits and '-', begin with a letter, and use at most 32 characters`},
		"host name":  {"a host's name becomes a word in /etc/hosts", "lab: a\nhosts:\n  - b\n  - 'c d'\n", `lab.yaml:4: host name "c d": use only lower-case letters, digits and '-', in parts joined by '.'`},
		"address":    {"an address is no name", "lab: a\nhosts: [10.0.0.1]\n", `lab.yaml:2: host name "10.0.0.1": use only lower-case letters, digits and '-', in parts joined by '.'`},
		"same host":  {"two hosts of one name", "lab: a\nhosts:\n  - b\n  - b\n", `lab.yaml:4: host name "b" is already the name of host b`},
		"outer":      {"the outer machine's name", "lab: a\nhosts: [tutti-server]\n", `lab.yaml:2: host name "tutti-server" is already the name of the outer machine`},
		"no hosts":   {"a lab without hosts", "lab: a\n", `lab.yaml:1: lab "a" has 0 hosts, but must have from 1 to 200`},
		"release":    {"an unknown release, on its line", "lab: a\nhosts: [b]\nrelease: sid\n", `lab.yaml:3: release "sid" is unknown: known releases are trixie, bookworm`},
		"host's own": {"a bad package of one host", "lab: a\nhosts:\n  b: {packages: [C]}\n", `lab.yaml:3: host "b": package "C": not the name of a Debian package`},
		"bind":       {"a bind without destination", "lab: a\nhosts: [b]\nbinds: [/etc]\n", `lab.yaml:3: bind "/etc": want SOURCE:DESTINATION`},
		"no script":  {"a script that is not there, on its line", "lab: a\nhosts:\n  b:\n    prepare: none.sh\n", `lab.yaml:4: prepare "none.sh": no such file or directory: name a file with a shell script, with a path relative to the lab file`},
		"directory":  {"a script that is a directory", "lab: a\nhosts:\n  b: {prepare: .}\n", `lab.yaml:3: prepare ".": not a regular file: name a file with a shell script, with a path relative to the lab file`},
		"endless":    {"a script that never ends", "lab: a\nhosts:\n  b: {prepare: /dev/zero}\n", `lab.yaml:3: prepare "/dev/zero": not a regular file: name a file with a shell script, with a path relative to the lab file`},
		"no source":  {"a bind of nothing", "lab: a\nhosts: [b]\nbinds: ['nowhere-at-all:/a']\n", `lab.yaml:1: bind /nowhere-at-all:/a: stat /nowhere-at-all: no such file or directory`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseSpec("lab.yaml", "/", []byte(tt.text))
			if err == nil {
				t.Fatalf("%s: no error", tt.reason)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
