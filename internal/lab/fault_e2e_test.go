//go:build e2e

package lab

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFaults applies each fault to a host. TestFaults checks the effect on the host, on another host and on
// the outer machine.
func TestFaults(t *testing.T) {
	m := testMachine(t)
	before := traces(t, m)
	r := up(t, m, twoHosts("one"))
	one, two := r.Hosts[0], r.Hosts[1]

	t.Run("cut", func(t *testing.T) {
		link := shell(t, one, "ip -o link show eth0; ip -o -4 addr show eth0; ip route")
		twice(t, one.Cut)
		wantReach(t, one, two, false)
		wantReach(t, two, one, false)
		if got := shell(t, one, "ping -q -c 1 -W 1 outer > /dev/null && echo yes || echo no"); got != "no" {
			t.Error("a host that is cut reaches the outer machine")
		}
		if diff := cmp.Diff(link, shell(t, one, "ip -o link show eth0; ip -o -4 addr show eth0; ip route")); diff != "" {
			t.Errorf("the host sees it: -before +now\n%s", diff)
		}
		wantNetwork(t, one, NetworkCut)
		twice(t, one.Heal)
		wantReach(t, one, two, true)
		wantNetwork(t, one, NetworkUp)
	})
	t.Run("kill", func(t *testing.T) { testKill(t, m, one, two) })
	t.Run("slow", func(t *testing.T) { testSlow(t, one, two, r.Outer.String()) })

	t.Run("down in every state", func(t *testing.T) {
		for _, do := range []error{one.Slow(t.Context(), Slow{Delay: time.Millisecond}), one.Cut(t.Context()), two.Kill(t.Context())} {
			if do != nil {
				t.Fatal(do)
			}
		}
		if err := m.Down(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		wantTraces(t, m, before)
		if err := one.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `no lab "one"`) {
			t.Errorf("start of a host whose lab is gone: %v", err)
		}
	})
}

func testKill(t *testing.T, m Machine, one, two *Host) {
	const identity = "cat /etc/machine-id; hostname -f; ip -o -4 addr show eth0 | cut -d' ' -f7; cat /sys/class/net/eth0/address; cat /root/kept"
	shell(t, one, "echo kept > /root/kept; echo lost > /run/lost; systemd-run --quiet --unit=there sleep 1000")
	// after the ping, host two knows the hardware address of the other host
	shell(t, two, "ping -q -c 1 -W 2 a-01 > /dev/null")
	was := shell(t, one, identity)
	pids, err := members(one.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	twice(t, one.Kill)
	for _, pid := range pids {
		// A process that has ended may still be a zombie until its parent has
		// read its exit status.
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(text), ") Z ") {
			t.Errorf("a process of the host is still there: %s", text)
		}
	}
	if err := one.Command(t.Context(), "true").Run(); err == nil || !strings.Contains(err.Error(), "tutti lab start a-01") {
		t.Errorf("a command on a host that is down: %v, want how to start it", err)
	}
	again, err := m.Open("one")
	if err != nil || again.Hosts[0].Running() || !again.Hosts[1].Running() {
		t.Errorf("who looks sees both hosts running, or none: %v", err)
	}
	if err := one.Cut(t.Context()); err == nil || !strings.Contains(err.Error(), "tutti lab start a-01") {
		t.Errorf("cut of a host that is down: %v, want how to start it", err)
	}
	wantReach(t, two, one, false)
	twice(t, one.Start)
	if diff := cmp.Diff(was, shell(t, one, identity)); diff != "" {
		t.Errorf("another host: -before +after\n%s", diff)
	}
	if got := shell(t, one, "ls /run/lost 2> /dev/null; systemctl is-active there || true"); got != "inactive" {
		t.Errorf("what was in memory came back: %s", got)
	}
	wantReach(t, two, one, true)
}

func testSlow(t *testing.T, one, two *Host, outer string) {
	const delay = 50 * time.Millisecond
	if err := one.Slow(t.Context(), Slow{Delay: time.Hour}); err == nil {
		t.Error("a delay of an hour: no error")
	}
	twice(t, func(ctx context.Context) error { return one.Slow(ctx, Slow{Delay: delay}) })
	wantNetwork(t, one, NetworkSlow)
	var ms float64
	out := shell(t, two, "ping -q -c 3 -W 5 a-01 | sed -nE 's,.* = ([0-9.]+)/.*,\\1,p'") // the shortest of the three times, in ms
	if _, err := fmt.Sscan(out, &ms); err != nil || ms < 100 {
		t.Errorf("the shortest round trip took %s ms (%v), want twice the delay of %s", out, err, delay)
	}
	testTransfer(t, one, outer)
	if err := one.Cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNetwork(t, one, NetworkSlowCut)
	wantReach(t, two, one, false)
	if err := one.Slow(t.Context(), Slow{}); err != nil {
		t.Fatal(err)
	}
	wantNetwork(t, one, NetworkCut)
	wantReach(t, two, one, false)
	// The test sends 40 packets and half are lost in each direction. The
	// probability that all arrive is 10^-24.
	if err := one.Slow(t.Context(), Slow{Loss: 0.5}); err != nil {
		t.Fatal(err)
	}
	wantNetwork(t, one, NetworkSlowCut)
	if err := one.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	// host two must know the host's hardware address before packets get lost. If it did not know
	// the address, its ARP requests could get lost, too, and the kernel sends only three of them
	wantReach(t, two, one, true)
	if err := one.Slow(t.Context(), Slow{Loss: 0.5}); err != nil {
		t.Fatal(err)
	}
	got := shell(t, two, "ping -q -c 40 -i 0.01 -W 1 a-01 | sed -nE 's/.* ([0-9]+) received.*/\\1/p'")
	if got == "40" || got == "0" {
		t.Errorf("%s of 40 packets came, want some", got)
	}
	if err := one.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNetwork(t, one, NetworkUp)
	wantReach(t, two, one, true)
}

// testTransfer sends content over the slow link and back. This tests the relay's segments and
// checksums. The kernel makes no segments and no checksums, because it leaves this work to the
// interface.
func testTransfer(t *testing.T, h *Host, outer string) {
	var content []byte
	url := serve(t, outer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			content, _ = io.ReadAll(r.Body)
			return
		}
		_, _ = w.Write(content)
	}))
	sum := shell(t, h, "head -c 3000000 /dev/urandom > /run/much; sha256sum < /run/much; curl -sS -T /run/much "+url)
	if got := fmt.Sprintf("%x  -", sha256.Sum256(content)); got != sum {
		t.Errorf("what came from the host has the digest %s, want %s", got, sum)
	}
	if got := shell(t, h, "curl -sS "+url+" | sha256sum"); got != sum {
		t.Errorf("what came back has the digest %s, want %s", got, sum)
	}
}

// The function `twice` calls the function `do` two times. The second call must change nothing and
// return no error.
func twice(t *testing.T, do func(context.Context) error) {
	t.Helper()
	for range 2 {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func shell(t *testing.T, h *Host, script string) string {
	t.Helper()
	out, err := h.Command(t.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", script, h.Name, err, out)
	}
	return strings.TrimSpace(string(out))
}

func wantReach(t *testing.T, from, to *Host, want bool) {
	t.Helper()
	tries := 1
	if want { // a lost ARP request is repeated only after a second
		tries = 5
	}
	got := shell(t, from, fmt.Sprintf("for i in $(seq %d); do ping -q -c 1 -W 1 %s > /dev/null && { echo yes; exit; }; done; echo no", tries, to.Name))
	if (got == "yes") != want {
		t.Errorf("%s reaches %s: %s, want %v", from.Name, to.Name, got, want)
	}
}

func wantNetwork(t *testing.T, h *Host, want Network) {
	t.Helper()
	if got := h.Network(); got != want {
		t.Errorf("network of %s: %q, want %q", h.Name, got, want)
	}
}
