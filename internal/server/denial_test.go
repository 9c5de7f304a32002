package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestOneNodeCannotHideAnother checks that many attempts of some nodes do not hide the attempts of another node: that
// node has its own entry. A minute later the log also has the number of attempts without an entry.
func TestOneNodeCannotHideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		nodes := map[string]*servertest.Node{}
		for i := range 12 {
			name := fmt.Sprintf("evil-%02d", i)
			nodes[name] = f.Join(tutti.NodeName(name))
		}
		victim := f.Join("web-01")
		recorded := map[string]int{}
		for _, n := range nodes {
			for i := range 400 {
				f.Refused(t.Context(), n.Key, fmt.Sprintf("read secret/%d", i))
			}
		}
		f.Refused(t.Context(), victim.Key, "speak for run x")
		for _, d := range f.Denials() {
			who, _, _ := strings.Cut(d, ": ")
			recorded[who]++
		}
		if n := recorded["node:web-01"]; n != 1 {
			t.Errorf("of web-01: %d entries, want 1", n)
		}
		total := 0
		for name := range nodes {
			n := recorded["node:"+name]
			if total += n; n < 1 || n > 30 {
				t.Errorf("of %s: %d entries, want 1 to 30", name, n)
			}
		}
		if total > 320 {
			t.Errorf("%d entries of all, want about 300", total)
		}
		before := len(f.Denials())
		time.Sleep(2 * time.Minute)
		counted := 0
		for _, e := range f.Events() {
			var n int
			if d, ok := e.Body.(*tutti.Denied); ok {
				if _, err := fmt.Sscanf(d.Reason, "%d times more within a minute", &n); err == nil && strings.HasPrefix(d.Who, "node:evil") {
					counted += n
				}
			}
		}
		if after := len(f.Denials()); after != before+len(nodes) || total+counted != 400*len(nodes) {
			t.Errorf("%d entries more, want %d; they count %d, and %d had their own: want %d in all", after-before, len(nodes), counted, total, 400*len(nodes))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestADayOfStrangersIsAMegabyte checks that attempts from many addresses with many names are only counted. So the
// attempts of a day need about a megabyte in the log.
func TestADayOfStrangersIsAMegabyte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hours = 2
		f := servertest.Start(t)
		tried := 0
		for range hours * 60 {
			for range 200 {
				tried++
				from := fmt.Sprintf("address:%d.%d.%d.7", 11+tried%90, tried/90%250, tried%250)
				if tried%2 == 0 {
					from = fmt.Sprintf("address:2001:db8:%x:%x::%x", tried%65536, tried/7%65536, tried)
				}
				f.Denied(t.Context(), from, fmt.Sprintf("connect to the bus as N%055d", tried), tutti.Errorf(tutti.CodeUnauthenticated, "no key of this fleet"))
			}
			time.Sleep(time.Minute)
		}
		bytes, entries := 0, 0
		for _, e := range f.Events() {
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			bytes, entries = bytes+len(raw), entries+1
		}
		first := 60 // this many strangers get their own entries, but only once
		if most := (1 << 20) * hours / 24; bytes > most || entries > hours*66+first {
			t.Errorf("%d entries with %d bytes in %d hours, want at most %d bytes", entries, bytes, hours, most)
		}
		t.Logf("%d entries, %d bytes", entries, bytes)
		last := f.Events()[len(f.Events())-1].Body.(*tutti.Denied)
		if last.Who != "strangers" || !strings.Contains(last.Reason, "others (") {
			t.Errorf("the last entry is %+v, want a sum of strangers", last)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestWhoHasAnothersTokenShows checks that the use of a stolen token has its own entry in the log, even among many
// attempts of strangers.
func TestWhoHasAnothersTokenShows(t *testing.T) {
	f := newFixture(t)
	token := newToken(t, f.Fleet, api.CreateToken{Name: "new-*"})
	if _, err := f.Enrol(t.Context(), machine(f.Fleet, "new-1", "first").Request(token)); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		f.Denied(t.Context(), fmt.Sprintf("key:%d", i), "join as new-2", tutti.Errorf(tutti.CodeRefused, "this token is not known"))
	}
	_, err := f.Enrol(t.Context(), machine(f.Fleet, "new-2", "thief").Request(token))
	wantCode(t, err, tutti.CodeRefused, "used by new-1 already")
	all := f.Denials()
	if last := all[len(all)-1]; !strings.HasPrefix(last, "token:"+string(token.Token)+": join as new-2 with the key ") {
		t.Errorf("the last denial is %q", last)
	}
}

// TestADenialIsSmallInTheLog checks that the entry of a refusal is small, for any attempt and any error text.
func TestADenialIsSmallInTheLog(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		reason string
		deny   func()
		most   int
	}{
		{"a subject", func() { f.Refused(t.Context(), f.db.Key, "subject n."+strings.Repeat("\x7f", 3900)) }, 600},
		{"a subject that JSON makes longer", func() { f.Refused(t.Context(), f.web1.Key, "subject n."+strings.Repeat("<", 3900)) }, 600},
		{"a long reason", func() {
			err := tutti.Errorf(tutti.CodeRefused, "%s", strings.Repeat("<", 64<<10))
			f.Denied(t.Context(), "node:web-02", strings.Repeat("\x7f", 3900), err)
		}, 3 << 10},
		{"of the writer", func() {
			result := servertest.Result(servertest.NewRunID(), tutti.Changed)
			wantCode(t, f.web2.Call(wire.OpResult, result, nil), tutti.CodeRefused, "is not a run of")
		}, 600},
	} {
		before := len(f.Events())
		tc.deny()
		all := f.Events()
		d, is := all[len(all)-1].Body.(*tutti.Denied)
		raw, err := json.Marshal(all[len(all)-1])
		if err != nil || !is || len(all) != before+1 || len(raw) > tc.most || d.What == "" {
			t.Fatalf("%s: %d entries, the last of %d bytes: %.300s, %v", tc.reason, len(all)-before, len(raw), raw, err)
		}
		if same := strings.HasPrefix(tc.reason, "a subject"); (d.Reason == "") != same {
			t.Errorf("%s: what was tried is %.50q, because %.50q", tc.reason, d.What, d.Reason)
		}
	}
}
