package tutti_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// stepWords is a table with the names of the kinds.
type stepWords struct{}

func (stepWords) Run() string      { return "run" }
func (stepWords) Converge() string { return "converge" }
func (stepWords) Wait() string     { return "wait" }
func (stepWords) Sleep() string    { return "sleep" }

func TestEveryStepKindHasARow(t *testing.T) {
	for _, kind := range tutti.StepKinds() {
		if word, known := tutti.ForStep(stepWords{}, kind); !known || word != string(kind) {
			t.Errorf("ForStep of %q: %q, %t", kind, word, known)
		}
		raw := `{"name":"x","timeout":0,"` + string(kind) + `":{}}`
		var s tutti.Step
		if err := json.Unmarshal([]byte(raw), &s); err != nil || s.Kind() != kind || s.Unknown != nil {
			t.Errorf("%s: kind %q, %v", raw, s.Kind(), err)
		}
		if on := s.ActsOn(); on != tutti.NodesNone && on != tutti.NodesListed && on != tutti.NodesFound {
			t.Errorf("a %s step acts on %q nodes", kind, on)
		}
	}
	if word, known := tutti.ForStep(stepWords{}, "reboot"); known {
		t.Errorf("ForStep of a kind of a later release: %q", word)
	}
}

// A viewer decodes as much as it can of a step of an unknown kind. Code that executes plans refuses a step of an
// unknown kind.
func TestAStepOfALaterRelease(t *testing.T) {
	for name, c := range map[string]struct{ raw, kind, reason string }{
		"a kind of its own":     {`{"name":"x","timeout":5,"reboot":{"target":"web"}}`, "reboot", "its key is its name"},
		"a text as its content": {`{"name":"x","timeout":5,"after":["y"],"per_node":true,"note":"lunch"}`, "note", "keys of every step name no kind"},
		"two new keys":          {`{"name":"x","timeout":5,"task":{},"notify":true}`, "notify+task", "nobody can say which of them is the kind"},
		"a kind as nothing":     {`{"name":"x","timeout":5,"run":null}`, "", "a key of this release names no later kind"},
		"no kind":               {`{"name":"x","timeout":5}`, "", "nothing names one"},
	} {
		t.Run(name, func(t *testing.T) {
			var s tutti.Step
			if err := json.Unmarshal([]byte(c.raw), &s); err != nil {
				t.Fatal(err)
			}
			if s.Name != "x" || s.Timeout != 5 || string(s.Kind()) != c.kind {
				t.Errorf("%s: %+v, want kind %q: %s", c.raw, s, c.kind, c.reason)
			}
			if again, err := json.Marshal(s); c.kind != "" && (err != nil || string(again) != c.raw) {
				t.Errorf("%s becomes %s, %v", c.raw, again, err)
			}
			plan := tutti.Plan{Name: "p", Steps: []tutti.Step{s}}
			if err := plan.Validate(); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), `step "x"`) || !strings.Contains(err.Error(), c.kind) {
				t.Errorf("%s: %v, want a refusal", c.raw, err)
			}
		})
	}
}

// A key that all steps have must not count as the kind of a step.
func TestKeysOfEveryStepNameNoKind(t *testing.T) {
	kinds := map[string]bool{}
	for _, kind := range tutti.StepKinds() {
		kinds[string(kind)] = true
	}
	fields := reflect.TypeFor[tutti.Step]()
	for i := range fields.NumField() {
		key, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if key == "-" || kinds[key] {
			continue
		}
		var s tutti.Step
		if err := json.Unmarshal([]byte(`{"`+key+`":null}`), &s); err != nil || s.Kind() != "" {
			t.Errorf("key %q makes a step of kind %q, %v", key, s.Kind(), err)
		}
	}
}

func TestThePlanOfAnEventIsRefused(t *testing.T) {
	const started = `{"v":1,"seq":1,"kind":"job.started","at":"2026-01-01T00:00:00Z","by":"x","data":{"job":"p-1","plan":{"name":"p","steps":[STEP]},"mode":"apply","targets":{}}}`
	var e tutti.Event
	for _, step := range []string{`{"name":"x","reboot":{}}`, `{"name":"x"}`, `{"name":"x","run":{},"wait":{}}`} {
		raw := strings.Replace(started, "STEP", step, 1)
		if err := json.Unmarshal([]byte(raw), &e); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: %v: the log refuses what it does not know", step, err)
		}
	}
	raw := strings.Replace(started, "STEP", `{"name":"x","run":{"target":"web"}}`, 1)
	if err := json.Unmarshal([]byte(raw), &e); err != nil {
		t.Fatal(err)
	}
	want := tutti.Step{Name: "x", Run: &tutti.RunStep{Target: "web"}}
	if diff := cmp.Diff(want, e.Body.(*tutti.JobStarted).Plan.Steps[0]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Plan.Validate, which the log uses, also checks how long a step sleeps.
func TestASleepHasBounds(t *testing.T) {
	for d, ok := range map[time.Duration]bool{-1: false, 0: false, 1: true, tutti.MaxSleep: true, tutti.MaxSleep + 1: false} {
		plan := tutti.Plan{Name: "p", Steps: []tutti.Step{{Name: "x", Sleep: &tutti.SleepStep{For: d}}}}
		if err := plan.Validate(); (err == nil) != ok || !ok && tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("sleep %s: %v", d, err)
		}
	}
}
