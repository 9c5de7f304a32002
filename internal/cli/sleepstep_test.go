package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func TestTheTreeOfASleep(t *testing.T) {
	p := newProgress()
	plan := tutti.Plan{Name: "deploy", Steps: []tutti.Step{{Name: "pause", Sleep: &tutti.SleepStep{For: time.Minute}}}}
	for i, body := range []tutti.Body{&tutti.JobStarted{Job: "deploy-1", Plan: plan}, &tutti.StepStarted{Job: "deploy-1", Step: "pause"}} {
		p.apply(api.Watched{Event: &tutti.Event{Seq: uint64(i + 1), At: began, Body: body}})
	}
	lines, _ := (&treeView{progress: p}).lines(began.Add(12*time.Second), false)
	if want := "└─ ● pause  12s  1m to pass"; lines[1] != want {
		t.Errorf("%s\nwant %s", strings.Join(lines, "\n"), want)
	}
}
