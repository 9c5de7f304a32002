//go:build ui

package uitest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// hostile is what a node that was taken over may write into every text that it controls.
const hostile = `"'><img src=x onerror="document.title='taken'"><script>document.title='taken'</script><a href="javascript:document.title='taken'">x</a>` +
	"<svg onload=document.title='taken'><iframe srcdoc='x'></iframe>{{7*7}}\u202etxet\u2066\x1b[31m\x00</style><style>*{display:none}</style>"

// TestNodesCannotChangeThePage: what a node says is text on the page, and nothing else.
func TestNodesCannotChangeThePage(t *testing.T) {
	f := small()
	name := "javascript:document.title='taken'" // no server accepts this name
	f.Views = append(f.Views,
		view{"node/" + name, api.NodeRow{
			Node: tutti.NodeName(name), State: api.NodeFailed, Why: hostile, Trouble: hostile, Paused: hostile, Conflicted: hostile, Cause: "h",
			Groups: []tutti.GroupName{hostile}, Phase: hostile, ActiveJob: hostile, Active: hostile, Outcome: hostile, Environment: hostile,
		}},
		view{"cause/h", api.NodeCause{ID: "h\"><img src=x>", State: api.NodeFailed, Text: hostile, By: hostile, Next: hostile, Nodes: 2, Some: []tutti.NodeName{tutti.NodeName(name), hostile}}},
		view{"cause/i", api.NodeCause{ID: "i", State: "<img src=x onerror=alert(1)>", Text: hostile, Nodes: 1, Some: []tutti.NodeName{hostile}}},
		view{"group/" + hostile, api.GroupView{Group: hostile, Nodes: 3, States: map[api.NodeState]int{api.NodeFailed: 1, hostile: 2}}},
		view{"node/__proto__", api.NodeRow{Node: "__proto__", State: hostile}},
		view{"fleet", api.FleetView{Fleet: hostile, Full: hostile, Nodes: 11, States: map[api.NodeState]int{api.NodeFailed: 2}}},
	)
	q := tutti.Query{Kind: "value", Key: hostile}
	at := tutti.Place{Resource: hostile, File: hostile, Line: 1}
	run := &api.RunView{Run: hostile, Node: hostile, Job: hostile, By: hostile, Plan: hostile, Cause: hostile, Reason: hostile, Outcome: hostile}
	cause := api.Cause{By: hostile, Key: hostile, Added: []string{hostile}, Removed: []string{hostile}, Run: run}
	answer := func(v any) http.HandlerFunc {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }
	}
	b := of(t, servertest.Start(t))
	b.watch = newStream(f).ServeHTTP
	b.answers = map[string]http.HandlerFunc{
		"explain/node": answer(api.NodeExplanation{
			Node: hostile, Standing: api.NodeStanding{State: api.NodeFailed, Why: hostile, Rests: hostile, Run: run}, Active: run, Reads: 1,
			Basis:    &api.NodeBasis{Environment: hostile, Commit: hostile, Puppet: hostile, Groups: []tutti.GroupName{hostile}},
			Changed:  []api.ChangedRead{{Query: q, At: at, Causes: []api.Cause{cause}}},
			Waits:    []api.WaitedFor{{Wait: tutti.Wait{Query: tutti.Query{Kind: "collect", Type: hostile, Filter: json.RawMessage(`["=","<img src=x>","<script>"]`)}, At: at}, Publishers: []tutti.NodeName{hostile, "//evil.example"}, Before: []api.Cause{cause}}},
			Failures: []tutti.Failure{{Resource: hostile, File: hostile, Message: hostile}}, Before: []api.WaitedFor{{Wait: tutti.Wait{Query: q}, Publishers: []tutti.NodeName{hostile}}},
		}),
		"nodes/show": answer(api.NodeDetail{
			NodeView: api.NodeView{Node: hostile, Trouble: hostile, Paused: hostile, Conflicted: hostile},
			Reads:    []api.ReadView{{Read: tutti.Read{Query: q, At: at}, Changed: true}}, Published: map[string]tutti.Digest{hostile: hostile}, Exports: []string{hostile},
		}),
	}
	d := openDoor(t, b, "")
	p := newTab(t, nil)
	p.open(d.url, "11 of 11")
	harmless := func(screen string, shows int) {
		t.Helper()
		if title := get[string](p, `document.title`); strings.Contains(title, "taken'") || !strings.HasSuffix(title, "Tutti") {
			// the title may contain the text, but not be it
			if title == "taken" {
				t.Errorf("%s: a text of a node ran as a script", screen)
			}
		}
		if got := get[string](p, `[...document.querySelectorAll("img, iframe, object, embed, form, style, base, main script, body script, [onerror], [onload], [srcdoc], [style*=display]")].map((e) => e.outerHTML).join("\n")`); got != "" {
			t.Errorf("%s: elements from a text: %s", screen, got)
		}
		if got := get[string](p, `[...document.querySelectorAll("a")].filter((a) => !a.getAttribute("href").startsWith("/ui/") || a.origin !== location.origin).map((a) => a.href).join("\n")`); got != "" {
			t.Errorf("%s: links from a text: %s", screen, got)
		}
		if got := get[string](p, `[...document.querySelectorAll("body *")].flatMap((e) => [...e.attributes].map((a) => a.value)).concat(document.body.innerText, document.title).filter((t) => /[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/.test(t)).join("\n")`); got != "" {
			t.Errorf("%s: characters that can deceive: %q", screen, got)
		}
		if got := strings.Count(p.text(), `<img src=x onerror="document.title='taken'">`); got < shows {
			t.Errorf("%s: the page shows the text %d times, want %d:\n%s", screen, got, shows, p.text())
		}
		if !strings.Contains(p.text(), `\u202etxet`) {
			t.Errorf("%s: the page does not show that the text changes its direction", screen)
		}
	}
	harmless("fleet", 6)
	p.shoot("hostile")
	// the link of the hostile name leads to its node, and nowhere else
	p.click(`.row a[href*="javascript"]`)
	p.wait("Changed since it was read")
	harmless("node", 12)
	p.shoot("hostile-node")
	if got := get[string](p, `location.href`); got != d.origin+"/ui/nodes/javascript%3Adocument.title%3D'taken'" {
		t.Errorf("the address is %s", got)
	}
	// the browser itself refuses HTML from a text, even if the page had a slip
	var got string
	p.do(chromedp.Evaluate(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "done" } catch (e) { return e.name } })()`, &got))
	if got != "TypeError" {
		t.Errorf("innerHTML: %s", got)
	}
	p.do(chromedp.Evaluate(`(() => { try { return trustedTypes.createPolicy("tutti", {}) && "done" } catch (e) { return e.name } })()`, &got))
	if got != "TypeError" {
		t.Errorf("a second policy: %s", got)
	}
	p.mu.Lock()
	p.faults = nil // the browser reports the two attempts
	p.mu.Unlock()
}
