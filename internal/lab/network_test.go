package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChooseSubnet(t *testing.T) {
	first, err := chooseSubnet("swift", nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason string
		taken  []netip.Prefix
		free   bool
		same   bool
	}{
		"free":   {"a lab gets its own place again", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, true, true},
		"inside": {"an address inside the subnet takes it", []netip.Prefix{netip.PrefixFrom(first.Addr().Next(), 32)}, true, false},
		"around": {"a network around part of the range", []netip.Prefix{netip.PrefixFrom(first.Addr(), 20).Masked()}, true, false},
		"all":    {"a network around all of the range leaves none", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := chooseSubnet("swift", tt.taken)
			if (err == nil) != tt.free {
				t.Fatalf("%s: error %v", tt.reason, err)
			}
			if err == nil && (got == first) != tt.same {
				t.Errorf("%s: got %s, first was %s", tt.reason, got, first)
			}
			if err == nil && overlaps(got, tt.taken) {
				t.Errorf("%s: got %s, which is taken", tt.reason, got)
			}
		})
	}
}

func TestNamesFitTheKernel(t *testing.T) {
	s := state{Name: strings.Repeat("a", maxLabName), dir: "/var/lib/tutti/lab/" + strings.Repeat("a", maxLabName)}
	for _, name := range []string{s.bridge(), s.veth(0), s.veth(maxHosts - 1)} {
		if len(name) > 15 {
			t.Errorf("interface %q has %d characters, the kernel allows 15", name, len(name))
		}
	}
	if !bridgeRE.MatchString(s.bridge()) || bridgeRE.MatchString(s.veth(0)) {
		t.Errorf("bridges are told from veths by %s: %q, %q", bridgeRE, s.bridge(), s.veth(0))
	}
	s.Subnet = netip.MustParsePrefix("10.87.3.0/24")
	if last := s.address(maxHosts - 1); !s.Subnet.Contains(last) || last.As4()[3] == 255 {
		t.Errorf("the last host has the address %s, which is no host's in %s", last, s.Subnet)
	}
}

func TestHostsFile(t *testing.T) {
	s := state{Name: "swift", Domain: "swift.test", Subnet: netip.MustParsePrefix("10.87.3.0/24")}
	spec := Spec{Name: "swift", Hosts: []HostSpec{{Name: "storage-01"}, {Name: "www.example.net", Aliases: []string{"cdn"}}}}
	for i, h := range spec.Hosts {
		s.Hosts = append(s.Hosts, hostState{Name: h.Name, Names: spec.names(h), Address: s.address(i)})
	}
	want := `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.87.3.1 outer.swift.test outer tutti-server
10.87.3.11 storage-01.swift.test storage-01
10.87.3.12 www.example.net www cdn
`
	if diff := cmp.Diff(want, s.hostsFile()); diff != "" {
		t.Errorf("the full name comes first, or hostname -f is the short one: -want +got\n%s", diff)
	}
}
