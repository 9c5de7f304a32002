package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// If the server began a job by itself, every view of the job shows the reason.
func TestAJobSaysWhyItBegan(t *testing.T) {
	const cause = "shared/x set by ada"
	e := tutti.Event{Seq: 1, At: began, By: "server", Body: &tutti.JobStarted{
		Job: "converge-17", Plan: tutti.Plan{Name: "converge"}, Mode: tutti.ModeApply, Cause: cause,
	}}
	p := newProgress()
	p.apply(api.Watched{Event: &e})
	var shown, events bytes.Buffer
	printJob(&shown, p.job(), began.Add(time.Minute))
	(&jsonView{progress: p, out: json.NewEncoder(&events)}).show(api.Watched{Event: &e})
	summary, err := json.Marshal(summarize(p.job(), began))
	if err != nil {
		t.Fatal(err)
	}
	tree, _ := (&treeView{progress: p}).lines(began, false)
	for where, text := range map[string]string{
		"job show":           shown.String(),
		"the first line":     strings.Join(linesOf(p, e), "\n"),
		"the head":           tree[0],
		"the event as JSON":  events.String(),
		"the summary's line": string(summary),
	} {
		if !strings.Contains(text, cause) {
			t.Errorf("%s does not say %q: %s", where, cause, text)
		}
	}
}
