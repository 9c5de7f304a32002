package lab

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/tutti-project/tutti"
)

// These are names of the outer machine that every host knows.
const (
	outerName  = "outer"
	serverName = "tutti-server"
)

// chooseSubnet returns a /24 network that does not overlap any network in the list `taken`. The search begins at
// a place that depends on the lab's name. So a lab usually gets the same addresses again.
func chooseSubnet(name string, taken []netip.Prefix) (netip.Prefix, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	for i := range uint32(256) {
		third := byte(h.Sum32() + i)
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 87, third, 0}), 24)
		if !overlaps(subnet, taken) {
			return subnet, nil
		}
	}
	return netip.Prefix{}, tutti.Errorf(tutti.CodeConflict, "no free subnet in 10.87.0.0/16: remove labs that are not needed")
}

func overlaps(p netip.Prefix, taken []netip.Prefix) bool {
	for _, t := range taken {
		if t.Overlaps(p) {
			return true
		}
	}
	return false
}

// takenSubnets returns the networks of this machine's addresses, routes (except default routes) and name servers.
func takenSubnets(ctx context.Context, x commands) ([]netip.Prefix, error) {
	var taken []netip.Prefix
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			taken = append(taken, p.Masked())
		}
	}
	routes, err := x.output(ctx, "ip", "-4", "route", "show", "table", "all")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(routes) {
		for _, word := range strings.Fields(line)[:1] {
			if p, err := netip.ParsePrefix(word); err == nil && p.Bits() > 0 {
				taken = append(taken, p.Masked())
			}
		}
	}
	for _, server := range nameservers(resolvConf()) {
		if a, err := netip.ParseAddr(server); err == nil {
			taken = append(taken, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return taken, nil
}

// resolvConf returns the outer machine's resolver configuration, for use on hosts. Hosts cannot use a
// resolver that listens only on loopback. The resolver of systemd listens only on loopback. If the
// outer machine uses it, resolvConf takes the file in which systemd stores the real name servers.
func resolvConf() string {
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, s := range nameservers(string(text)) {
			if a, err := netip.ParseAddr(s); err == nil && !a.IsLoopback() {
				return string(text)
			}
		}
	}
	return ""
}

func nameservers(conf string) []string {
	var servers []string
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			servers = append(servers, f[1])
		}
	}
	return servers
}

// outerMTU returns the largest packet size of the interface with the default route. Hosts use this
// size. Larger packets would get lost if a router on the way does not report its limit.
func outerMTU() int {
	const usual = 1500
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return usual
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) > 1 && fields[1] == "00000000" {
			if i, err := net.InterfaceByName(fields[0]); err == nil {
				return i.MTU
			}
		}
	}
	return usual
}

// The method `connect` creates the bridge, and makes it possible for hosts to reach other networks.
func (s state) connect(ctx context.Context, x commands, mtu int) error {
	if err := forward(); err != nil {
		return err
	}
	// The bridge gets a fixed address, because the kernel would change the address when ports are added or removed.
	bridge := fmt.Sprintf("link add %[1]s mtu %[3]d address %[5]s type bridge\nlink set %[1]s up\naddr add %[2]s/%[4]d dev %[1]s\n",
		s.bridge(), s.outer(), mtu, s.Subnet.Bits(), s.mac(0))
	if err := x.run(ctx, bridge, "ip", "-batch", "-"); err != nil {
		return err
	}
	return x.run(ctx, s.ruleset(), "nft", "-f", "-")
}

// ruleset returns firewall rules. With these rules, hosts reach the networks of the outer machine, and
// their packets have the address of the outer machine. All rules are in a separate table. So removing
// the table removes all rules of the lab.
func (s state) ruleset() string {
	return fmt.Sprintf(`table ip %[1]s {
	chain out {
		type nat hook postrouting priority srcnat;
		ip saddr %[2]s ip daddr != %[2]s masquerade
	}
	chain through {
		type filter hook forward priority filter;
		iifname %[3]q accept
		oifname %[3]q accept
	}
}
`, s.table(), s.Subnet, s.bridge())
}

// The method `plug` creates a host's network namespace and connects it to the bridge by a veth pair. It creates
// the outer end of this pair from inside the namespace, so this end has its final name from the beginning.
func (s state) plug(ctx context.Context, x commands, host, mtu int) error {
	ns := s.netns(host)
	if err := os.WriteFile(ns, nil, 0o600); err != nil {
		return err
	}
	if err := x.run(ctx, "", "unshare", "--net="+ns, "true"); err != nil {
		return err
	}
	inside := fmt.Sprintf(`link set lo up
link add eth0 mtu %[1]d address %[7]s type veth peer name %[2]s mtu %[1]d netns %[3]d
link set eth0 up
addr add %[4]s/%[5]d dev eth0
route add default via %[6]s
`, mtu, s.veth(host), os.Getpid(), s.address(host), s.Subnet.Bits(), s.outer(), s.mac(host+1))
	if err := x.run(ctx, inside, "nsenter", "--net="+ns, "ip", "-batch", "-"); err != nil {
		return err
	}
	return x.run(ctx, "", "ip", "link", "set", s.veth(host), "master", s.bridge(), "up")
}

// The method `unplug` removes everything that the method `plug` has created, if it exists.
func (s state) unplug(ctx context.Context, x commands, host int) error {
	if err := removeLink(ctx, x, s.veth(host)); err != nil {
		return err
	}
	return unmount(s.netns(host))
}

// The method `disconnect` removes everything that the methods `connect` and `plug` have created, if
// it exists.
func (s state) disconnect(ctx context.Context, x commands) error {
	for i := range s.Hosts {
		if err := s.unplug(ctx, x, i); err != nil {
			return err
		}
	}
	if err := removeLink(ctx, x, s.bridge()); err != nil {
		return err
	}
	// Deleting a table that does not exist fails, so the command adds the table first.
	return x.run(ctx, fmt.Sprintf("add table ip %[1]s\ndelete table ip %[1]s\n", s.table()), "nft", "-f", "-")
}

func removeLink(ctx context.Context, x commands, name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil //nolint:nilerr // the link is already gone
	}
	return x.run(ctx, "", "ip", "link", "del", name)
}
