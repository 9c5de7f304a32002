package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLabFaultArguments(t *testing.T) {
	tests := map[string]struct {
		reason string
		args   []string
		want   string // what is called
		err    string
	}{
		"cut":         {"the only lab", []string{"cut", "db-01"}, "cut  db-01", ""},
		"named lab":   {"before or after the host", []string{"heal", "db-01", "--lab", "two"}, "heal two db-01", ""},
		"kill":        {"a power cut", []string{"kill", "--lab=two", "db-01"}, "kill two db-01", ""},
		"start":       {"and back", []string{"start", "db-01"}, "start  db-01", ""},
		"no host":     {"nothing is done to some host", []string{"kill"}, "", "accepts 1 arg(s), received 0"},
		"slow":        {"both at once", []string{"slow", "db-01", "--delay", "100ms", "--loss", "5%"}, "slow  db-01 100ms 0.05", ""},
		"delay":       {"one alone", []string{"slow", "db-01", "--delay", "1s"}, "slow  db-01 1s 0", ""},
		"fraction":    {"less than one percent", []string{"slow", "db-01", "--loss", "0.1%"}, "slow  db-01 0s 0.001", ""},
		"off":         {"neither ends it", []string{"slow", "db-01", "--off"}, "slow  db-01 0s 0", ""},
		"how slow":    {"not at all is --off", []string{"slow", "db-01"}, "", "how slow? Give --delay, --loss, or --off"},
		"off and on":  {"contradictions", []string{"slow", "db-01", "--off", "--delay", "1s"}, "", "if any flags in the group [off delay] are set none of the others can be; [delay off] were all set"},
		"no percent":  {"0.05 could be either", []string{"slow", "db-01", "--loss", "0.05"}, "", `--loss "0.05": want a percentage from 0% to less than 100%, like 5%`},
		"everything":  {"that is cut", []string{"slow", "db-01", "--loss", "100%"}, "", `--loss "100%": want a percentage from 0% to less than 100%, like 5%`},
		"not a part":  {"NaN is a float", []string{"slow", "db-01", "--loss", "NaN%"}, "", `--loss "NaN%": want a percentage from 0% to less than 100%, like 5%`},
		"its failure": {"the command's own error", []string{"cut", "nobody"}, "cut  nobody", `no host "nobody" in lab "one"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			called := ""
			call := func(verb string) func(context.Context, string, string) error {
				return func(_ context.Context, lab, host string) error {
					called = fmt.Sprintf("%s %s %s", verb, lab, host)
					if host == "nobody" {
						return errors.New(`no host "nobody" in lab "one"`)
					}
					return nil
				}
			}
			cmd := newLabCommand(&options{deps: Deps{Lab: Lab{Faults: LabFaults{
				Cut: call("cut"), Heal: call("heal"), Kill: call("kill"), Start: call("start"),
				Slow: func(_ context.Context, lab, host string, delay time.Duration, loss float64) error {
					called = fmt.Sprintf("slow %s %s %s %v", lab, host, delay, loss)
					return nil
				},
			}}}})
			cmd.SetArgs(tt.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			said := ""
			if err := cmd.Execute(); err != nil {
				said = err.Error()
			}
			if diff := cmp.Diff([]string{tt.want, tt.err}, []string{called, said}); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func TestWriteLabs(t *testing.T) {
	views := []LabView{{Name: "one", Hosts: []LabHostView{
		{Name: "a-01", Address: "192.0.2.11", Running: true},
		{Name: "a-02", Address: "192.0.2.12", Running: true, Network: "slow and cut"},
		{Name: "a-03", Address: "192.0.2.13"},
		{Name: "a-04", Address: "192.0.2.14"},
	}}}
	var out strings.Builder
	if err := writeLabs(&out, views, false); err != nil {
		t.Fatal(err)
	}
	want := `LAB  HOST  ADDRESS     STATE
one  a-01  192.0.2.11  running
one  a-02  192.0.2.12  running, slow and cut
one  a-03  192.0.2.13  down
one  a-04  192.0.2.14  down
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
