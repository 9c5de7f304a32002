//go:build ui

package uitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// small is a fleet in which something of each kind is wrong.
func small() frame {
	at := time.Now().Add(-41 * time.Minute)
	views := []view{
		{"fleet", api.FleetView{
			Fleet: "shop", Nodes: 9, States: map[api.NodeState]int{api.NodeGood: 3, api.NodeStale: 3, api.NodeFailed: 1, api.NodeWaiting: 1, api.NodeNew: 1}, Away: 1, Paused: 1, Running: 1,
		}},
		{"group/web", api.GroupView{Group: "web", Nodes: 6, States: map[api.NodeState]int{api.NodeGood: 3, api.NodeStale: 3}}},
		{"group/db", api.GroupView{Group: "db", Nodes: 2, States: map[api.NodeState]int{api.NodeFailed: 1, api.NodeNew: 1}}},
		{"cause/c1", api.NodeCause{ID: "c1", State: api.NodeStale, Kind: api.CauseAnswer, Text: `value "db/port" has changed since it was read`, By: "operator:ada", At: at, Change: "value.set", Key: "db/port", Since: at, Nodes: 3, Some: []tutti.NodeName{"web-01", "web-02", "web-03"}, Next: "react in 1m40s"}},
		{"cause/c2", api.NodeCause{ID: "c2", State: api.NodeFailed, Kind: api.CauseFailure, Text: "Exec[mkfs]: no such disk", Since: at, Nodes: 1, Some: []tutti.NodeName{"db-02"}, Next: "tried 3 times, left alone"}},
		{"cause/c3", api.NodeCause{ID: "c3", State: api.NodeWaiting, Kind: api.CauseWait, Text: "waits for Swift::Ringsync <<| |>>", Since: at, Nodes: 1, Some: []tutti.NodeName{"lb-01"}}},
		{"cause/c4", api.NodeCause{ID: "c4", State: api.NodeNew, Kind: api.CauseOther, Text: "no run yet", Nodes: 1, Some: []tutti.NodeName{"db-03"}}},
		{"node/db-02", api.NodeRow{Node: "db-02", State: api.NodeFailed, Why: "Exec[mkfs]: no such disk", Since: at, Cause: "c2", Groups: []tutti.GroupName{"db"}, Connected: true, Paused: "a disk is on its way"}},
		{"node/lb-01", api.NodeRow{Node: "lb-01", State: api.NodeWaiting, Why: "waits for Swift::Ringsync <<| |>>", Since: at, Cause: "c3", Connected: true}},
		{"node/db-03", api.NodeRow{Node: "db-03", State: api.NodeNew, Why: "no run yet", Cause: "c4", Groups: []tutti.GroupName{"db"}}},
	}
	for i := 1; i <= 6; i++ {
		n := api.NodeRow{Node: tutti.NodeName(fmt.Sprintf("web-%02d", i)), State: api.NodeGood, Groups: []tutti.GroupName{"web"}, Connected: true}
		if i <= 3 {
			n.State, n.Why, n.Since, n.Cause = api.NodeStale, `value "db/port" has changed since it was read`, at, "c1"
		}
		if i == 2 {
			n.Active, n.ActiveJob, n.Phase = "01a1ff0a", "converge-81", "applying"
		}
		views = append(views, view{"node/" + string(n.Node), n})
	}
	return frame{Seq: 1, Reset: true, Whole: true, Views: views, Cursor: "1"}
}

func TestFleet(t *testing.T) {
	b := of(t, servertest.Start(t))
	s := newStream(small())
	b.watch = s.ServeHTTP
	d := openDoor(t, b, "")
	p := newTab(t, nil)
	p.loud = true // the real server does not know the nodes of the scripted stream
	p.open(d.url, "9 of 9")
	p.shows("shop", "live", "read only", "ada", "Needs you", "Exec[mkfs]: no such disk", "tried 3 times, left alone", "waits for Swift::Ringsync <<| |>>",
		"Stale, by cause", `value "db/port" has changed since it was read`, "by ada, ", "react in 1m40s", "3 stale", "1 failed", "1 away", "(41m)", "applying, converge-81", "tutti node list")
	if got := get[string](p, `location.href`); got != d.origin+"/ui/" {
		t.Errorf("the address is %s: it still has the code", got)
	}
	if got := get[string](p, `document.title`); got != "(2) shop · Tutti" {
		t.Errorf("the title is %q", got)
	}
	if got := get[string](p, `document.cookie + Object.keys(localStorage)`); got != "" {
		t.Errorf("the page stores %q", got)
	}
	p.shoot("fleet")
	p.accessible()

	// a count is a filter, and the filter is in the address
	p.click(`.counts a[href*="stale"]`)
	p.wait("3 of 9")
	if got := get[string](p, `location.search`); got != "?filter=state%3Astale" {
		t.Errorf("the filter is %q", got)
	}
	p.shows("tutti node list --state stale")
	p.commands()
	p.do(chromedp.Reload())
	p.wait("3 of 9") // the session and the filter survive
	p.click(`.groups a[href*="db"]`)
	p.wait("No node fits the filter")
	p.do(chromedp.NavigateBack())
	p.wait("3 of 9")
	p.do(chromedp.SendKeys("#filter", " web-02", chromedp.ByQuery))
	p.wait("1 of 9")
	p.press(kb.Escape)
	p.press(kb.Escape)
	p.wait("9 of 9")

	// the keyboard
	p.press("j")
	p.press("j")
	p.press("x")
	p.wait("1 selected")
	p.shows(`tutti puppet status --on 'node in ["lb-01"]'`)
	p.commands()
	p.press("k")
	p.press("?")
	p.until(`document.querySelector("dialog").open`)
	p.shows("copy the command of this screen", "select the node, for one command")
	p.shoot("keys")
	p.press(kb.Escape)
	p.until(`!document.querySelector("dialog").open`)
	p.press("c")
	p.wait("copied: tutti node list")
	p.press(kb.Enter)
	p.until(`location.pathname == "/ui/nodes/db-02"`)

	// what changes on the server, changes on the page
	p.do(chromedp.NavigateBack())
	p.wait("9 of 9")
	s.send(frame{Seq: 2, Whole: true, Cursor: "2", Gone: []string{"cause/c3", "node/lb-01"}, Views: []view{
		{"fleet", api.FleetView{Fleet: "shop", Nodes: 8, States: map[api.NodeState]int{api.NodeGood: 4, api.NodeStale: 3, api.NodeFailed: 1}}},
	}})
	p.wait("8 of 8")
	if strings.Contains(p.text(), "Ringsync") {
		t.Errorf("the page still shows what is gone:\n%s", p.text())
	}
}

// TestFleetOfAServer: the views of a real server are on the page, and follow it.
func TestFleetOfAServer(t *testing.T) {
	f := shopOf(t)
	p := newTab(t, nil)
	p.open(openDoor(t, of(t, f), "").url, "4 of 4")
	p.shows("shop", "1 ✓ good", "1 ↻ stale", "1 ✕ failed", "1 ○ never ran", "Needs you", "its last run failed: Exec[mkfs]", "Stale, by cause",
		`value "app/motd" has changed since it was read`, "by ada")
	p.shoot("fleet-real")
	p.commands()
	if err := f.SetValue(servertest.Operator(), "app/motd", json.RawMessage(`"hello"`)); err != nil {
		t.Fatal(err)
	}
	p.wait("2 ✓ good")
	if strings.Contains(p.text(), "app/motd") {
		t.Errorf("the page shows a cause that is gone:\n%s", p.text())
	}
	f.Join("new-02", "web")
	p.wait("5 of 5")
	p.click(`.causes a[href="/ui/nodes/web-02"]`)
	p.wait("Exec[mkfs]: no such disk (/x/disk.pp:9)")
	p.do(chromedp.NavigateBack())
	p.wait("5 of 5")
}

func TestANewTabNeedsNoCode(t *testing.T) {
	b := of(t, servertest.Start(t))
	s := newStream(small())
	b.watch = s.ServeHTTP
	d := openDoor(t, b, "")
	first := newTab(t, nil)
	first.open(d.url, "9 of 9")
	second := newTab(t, first)
	second.open(d.origin+"/ui/?filter=group:db", "2 of 9")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != 1 {
		t.Errorf("two tabs have %d streams", s.asked)
	}
}

func TestAStrangerGetsNothing(t *testing.T) {
	b := of(t, servertest.Start(t))
	b.watch = newStream(small()).ServeHTTP
	d := openDoor(t, b, "")
	p := newTab(t, nil)
	p.open(d.url, "9 of 9")
	stranger := newTab(t, nil)
	stranger.loud = true
	stranger.open(d.url, "Not connected")
	stranger.shows("the code of this address was used before", "tutti ui")
	stranger.shoot("shut")
	stranger.accessible()
	third := newTab(t, nil)
	third.open(d.origin+"/ui/nodes/web-01", "this page has no connection")
	p.press("j") // the first browser goes on
	p.wait("9 of 9")
}

// TestAForeignPageGetsNothing: a page of another port of this machine tries everything that a page can try.
func TestAForeignPageGetsNothing(t *testing.T) {
	b := of(t, servertest.Start(t))
	b.watch = newStream(small()).ServeHTTP
	d := openDoor(t, b, "")
	p := newTab(t, nil)
	p.open(d.url, "9 of 9")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>evil</title><iframe id="f" src="%[1]s/ui/"></iframe><img id="i" src="%[1]s/ui/app.css">
			<form id="p" method="post" action="%[1]s/v1/nodes/list" enctype="text/plain" target="f"><input name="a"></form>`, d.origin)
	}))
	defer evil.Close()
	q := newTab(t, p)
	q.loud = true
	q.foreign = true
	q.do(chromedp.Navigate(evil.URL))
	said := get[string](q, `document.title`)
	for _, attempt := range []string{
		`fetch(%[1]s + "/v1/nodes/list", {method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer x"}, body: "null"})`,
		`fetch(%[1]s + "/v1/nodes/list", {method: "POST", mode: "no-cors", body: "null"})`,
		`fetch(%[1]s + "/door/exchange", {method: "POST", mode: "no-cors", body: '{"code":"x"}'})`,
		`fetch(%[1]s + "/ui/app.js")`,
	} {
		var got string
		q.do(chromedp.Evaluate(fmt.Sprintf(attempt, quote(d.origin))+`.then((r) => "status " + r.status + " " + r.type, (e) => "refused")`, &got, awaits))
		if got != "refused" && got != "status 0 opaque" {
			t.Errorf("%s: %s", attempt, got)
		}
	}
	q.do(chromedp.Evaluate(`document.getElementById("p").submit()`, nil))
	q.until(`document.getElementById("f").contentDocument === null`)
	for _, want := range []string{"another web page", "inside another page"} {
		if !strings.Contains(d.refusals(), want) {
			t.Errorf("%s: the door did not refuse %q: %s", said, want, d.refusals())
		}
	}
	q.mu.Lock()
	q.faults = nil // the browser complains about every attempt
	q.mu.Unlock()
}

func TestStates(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		b := of(t, servertest.Start(t))
		b.watch = newStream(frame{Reset: true, Whole: true, Cursor: "1", Views: []view{{"fleet", api.FleetView{}}}}).ServeHTTP
		p := newTab(t, nil)
		p.open(openDoor(t, b, "").url, "tutti token create --name web-01")
		p.commands()
		p.shoot("empty")
		p.accessible()
	})
	t.Run("loading", func(t *testing.T) {
		b := of(t, servertest.Start(t))
		s := newStream()
		b.watch = s.ServeHTTP
		p := newTab(t, nil)
		p.open(openDoor(t, b, "").url, "The server counts its nodes")
		p.shows("connecting", "read only")
		p.shoot("loading")
		s.send(small())
		p.wait("9 of 9")
	})
	t.Run("error", func(t *testing.T) {
		b := of(t, servertest.Start(t))
		s := newStream(small())
		b.watch = s.ServeHTTP
		p := newTab(t, nil)
		p.loud = true
		p.open(openDoor(t, b, "").url, "9 of 9")
		s.end(true)
		p.wait("the server at https://tutti:8150 cannot be reached; the page is as of")
		p.shows("9 of 9", "Try again") // the old data stays
		p.do(chromedp.Evaluate(`{ const now = Date.now; Date.now = () => now() + 40_000 }`, nil))
		p.wait("s behind")
		p.shoot("error")
		s.end(false)
		p.click(".problem button")
		p.until(`!document.querySelector(".problem")`)
		p.wait("live")
	})
	t.Run("refused", func(t *testing.T) {
		b := of(t, servertest.Start(t))
		b.watch = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"code":"refused","message":"operator ada has none of the verbs view; ask for {to: ada, may: view}"}`))
		}
		p := newTab(t, nil)
		p.loud = true
		p.open(openDoor(t, b, "").url, "operator ada has none of the verbs view")
	})
}

// TestTenThousand: a large fleet has as few elements as a small one.
func TestTenThousand(t *testing.T) {
	const all = 10_000
	f := frame{Seq: 1, Reset: true, Whole: true, Cursor: "1"}
	states := map[api.NodeState]int{}
	for i := range all {
		n := api.NodeRow{Node: tutti.NodeName(fmt.Sprintf("node-%05d", i)), State: api.NodeGood, Groups: []tutti.GroupName{tutti.GroupName(fmt.Sprintf("group-%02d", i%40))}, Connected: true}
		if i%10 == 0 {
			n.State, n.Why, n.Cause = api.NodeStale, "some reason", fmt.Sprintf("c%d", i/10%200)
		}
		states[n.State]++
		f.Views = append(f.Views, view{"node/" + string(n.Node), n})
	}
	f.Views = append(f.Views, view{"fleet", api.FleetView{Fleet: "large", Nodes: all, States: states}})
	for i := range 200 {
		f.Views = append(f.Views, view{fmt.Sprintf("cause/c%d", i), api.NodeCause{ID: fmt.Sprintf("c%d", i), State: api.NodeStale, Text: fmt.Sprintf("reason %d", i), Nodes: 5, Some: []tutti.NodeName{"node-00000", "node-02000", "node-04000"}}})
	}
	for i := range 40 {
		g := tutti.GroupName(fmt.Sprintf("group-%02d", i))
		f.Views = append(f.Views, view{"group/" + string(g), api.GroupView{Group: g, Nodes: all / 40, States: map[api.NodeState]int{api.NodeGood: all / 40}}})
	}
	b := of(t, servertest.Start(t))
	s := newStream(f)
	b.watch = s.ServeHTTP
	p := newTab(t, nil)
	p.open(openDoor(t, b, "").url, "10,000 of 10,000")
	few := func(when string) {
		t.Helper()
		if n := get[int](p, `document.querySelectorAll("*").length`); n >= 1500 {
			t.Errorf("%s: %d elements", when, n)
		} else {
			t.Logf("%s: %d elements", when, n)
		}
	}
	few("at first")
	p.shoot("large")
	p.do(chromedp.Evaluate(`document.querySelector(".rows").scrollTop = 1e9`, nil))
	p.wait("node-09999")
	few("at the end of the list")
	p.click("section > button")
	p.wait("reason 99")
	few("with 100 causes")
	p.do(chromedp.SendKeys("#filter", "state:stale node-0999", chromedp.ByQuery))
	p.wait("1 of 10,000")
	s.send(frame{Seq: 2, Whole: true, Cursor: "2", Views: []view{{"node/node-09990", api.NodeRow{Node: "node-09990", State: api.NodeGood, Connected: true}}}})
	p.wait("0 of 10,000")
}
