package puppet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// foreign returns a report that a real Puppet has left (puppet/testdata/foreign), with
// some parts replaced. The argument `change` is a list of old and new texts: old, new, old, new, ….
func foreign(t *testing.T, version, name string, change ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../puppet/testdata/foreign", version, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("%s has no %q", name, change[i])
		}
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	return text
}

// The replacements `synced` turn a report into a report of `puppet agent`.
var synced = []string{"    - - config_retrieval\n", "    - - plugin_sync\n      - Plugin sync\n      - 0.5\n    - - config_retrieval\n"}

// noCatalog is the report of a `puppet agent` whose catalog did not compile, as Puppet 8
// writes it. The report ends before Puppet has counted anything.
func noCatalog(messages ...string) string {
	text := "--- !ruby/object:Puppet::Transaction::Report\nhost: web-01\ntime: '2026-11-21T22:29:12.026468458+00:00'\nconfiguration_version:\n" +
		"transaction_uuid: d8c38fc7-44fd-4cfb-a257-c1ed5af072f2\nreport_format: 12\npuppet_version: 8.10.0\nstatus: failed\ntransaction_completed: false\n" +
		"noop: false\nnoop_pending: false\nenvironment: production\nlogs:\n"
	for _, m := range messages {
		text += fmt.Sprintf("- level: err\n  message: %q\n  source: Puppet\n  tags: []\n  time: '2026-11-21T22:29:13.0+00:00'\n  file:\n  line:\n", m)
	}
	return text + "metrics:\n  resources: {name: resources, label: Resources, values: [[total, Total, 0]]}\n  time: {name: time, label: Time, values: [[plugin_sync, Plugin sync, 0.2], [total, Total, 1.5]]}\n" +
		"resource_statuses: {}\ncorrective_change: false\ncached_catalog_status: not_used\n"
}

// leave makes a root directory with a Puppet that has left a report, and reads this
// report.
func leave(t *testing.T, text string) (tutti.Foreign, error) {
	t.Helper()
	root := rootWith(t, 1, "")
	write(t, filepath.Join(root, places[1].Ruby), "#!/bin/sh\necho web-01.example.com\n", 0o755) // prints Puppet's certname
	file := filepath.Join(root, "var/cache/puppet/state/last_run_report.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run, raw, err := Local{Root: root}.LastReport(t.Context(), "web-01", file)
	if err == nil && run.Result.Report != tutti.DigestOf(raw) {
		t.Errorf("the report is %s, named %s", tutti.DigestOf(raw), run.Result.Report)
	}
	return run, err
}

func TestAForeignRunIsJudgedByItsReport(t *testing.T) {
	good := func(more ...string) string { return foreign(t, "8.10.0", "changed", append(synced, more...)...) }
	for _, tc := range []struct{ reason, report, want string }{
		{"changed, 7", foreign(t, "7.23.0", "changed"), "changed"},
		{"unchanged, 7", foreign(t, "7.23.0", "unchanged"), "unchanged"},
		{"unchanged, 8", foreign(t, "8.10.0", "unchanged"), "unchanged"},
		{"noop", foreign(t, "8.10.0", "noop", synced...), "unchanged noop"},
		{"by the host's whole name, as cron has it", good("host: web-01", "host: web-01.example.com"), "changed whole"},
		{"resources failed", foreign(t, "7.23.0", "failed", synced...), "failed:resources: 1 resource failed [Exec[/bin/false] change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]]"},
		{"of the agent, all of it", good(), "changed whole"},
		{"the agent, which published nothing", good("logs:\n", "logs:\n- level: warning\n  message: 'tutti: this Puppet was not started by Tutti: shared values are not read, nothing is published'\n"+
			"  source: Puppet\n  tags: []\n  time: '2026-11-21T22:29:13.0+00:00'\n"), "changed"},
		{"the agent, limited by tags", foreign(t, "8.10.0", "tags", synced...), "changed"},
		{"of another environment", good("environment: production", "environment: next"), "changed"},
		{"a cached catalog that was asked for", good("cached_catalog_status: not_used", "cached_catalog_status: explicitly_requested"), "changed"},
		{"an old catalog", good("cached_catalog_status: not_used", "cached_catalog_status: on_failure"), "failed:compile: an old catalog was applied because the new one did not compile"},
		{"a compile error", noCatalog("Could not retrieve catalog from remote server: Error 500 on SERVER: no", "Could not retrieve catalog; skipping run"),
			"failed:compile: Could not retrieve catalog from remote server: Error 500 on SERVER: no [ Could not retrieve catalog from remote server: Error 500 on SERVER: no]"},
		{"a compile error with its place", noCatalog("Could not retrieve catalog from remote server: Error 500 on SERVER: no (file: /c/site.pp, line: 4, column: 9) on node n"),
			"failed:compile: Could not retrieve catalog from remote server: Error 500 on SERVER: no (file: /c/site.pp, line: 4, column: 9) on node n" +
				" [/c/site.pp:4:9 Could not retrieve catalog from remote server: Error 500 on SERVER: no (file: /c/site.pp, line: 4, column: 9) on node n]"},
		{"without a word", noCatalog(), "failed:compile: the report does not say why"},
		{"a prerun_command", noCatalog("Could not run command from prerun_command: no"), "failed:refused: Could not run command from prerun_command: no [ Could not run command from prerun_command: no]"},
		{"facts", noCatalog("Failed to apply catalog: Could not retrieve local facts: no"), "failed:facts: Failed to apply catalog: Could not retrieve local facts: no [ Failed to apply catalog: Could not retrieve local facts: no]"},
		{"a catalog that cannot be applied", noCatalog("Failed to apply catalog: no such type"), "failed:catalog: Failed to apply catalog: no such type [ Failed to apply catalog: no such type]"},
		{"good without a catalog", strings.Replace(noCatalog(), "status: failed", "status: unchanged", 1), "failed:compile: the report does not say why"},
		{"a cycle", foreign(t, "8.10.0", "failed", "message: said\n", "message: Found 1 dependency cycle\n", "level: notice\n  message: Found", "level: err\n  message: Found"),
			"failed:catalog: Found 1 dependency cycle [Exec[/bin/false] change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]]"},
		{"not applied to its end", good("transaction_completed: true", "transaction_completed: false"), "failed:catalog: the catalog was not applied to its end: the report does not say why"},
		{"it contradicts itself", foreign(t, "7.23.0", "failed", "status: failed", "status: changed"), "failed:machinery: the report says changed, and has resources that failed [Exec[/bin/false] change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]]"},
		{"an unknown status", good("status: changed", "status: fine"), `failed:machinery: the report has the unknown status "fine"`},
	} {
		run, err := leave(t, tc.report)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		r := run.Result
		got := string(r.Outcome)
		if r.Reason != "" {
			got += ":" + string(r.Reason) + ": " + r.Message
		}
		for _, f := range r.Failures {
			at := f.Resource
			if f.Column > 0 {
				at = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
			}
			got += fmt.Sprintf(" [%s %s]", at, f.Message)
		}
		if run.Noop {
			got += " noop"
		}
		if run.Whole {
			got += " whole"
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

// TestAForeignRunWhosePostrunCommandFailed: if the postrun_command fails, Puppet exits with 1, but
// its report has only the result of the catalog.
func TestAForeignRunWhosePostrunCommandFailed(t *testing.T) {
	for _, status := range []string{"changed", "unchanged"} {
		text := foreign(t, "8.10.0", status, synced...)
		text = strings.Replace(text, "logs:\n", "logs:\n- level: err\n  message: \"Could not run command from postrun_command: Execution of '/bin/false' returned 1: \"\n"+
			"  source: Puppet\n  tags: []\n  time: '2026-11-21T22:29:13.0+00:00'\n  file:\n  line:\n", 1)
		run, err := leave(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if r := run.Result; run.Whole || r.Outcome != tutti.Failed || r.Reason != tutti.BecauseMachinery || !strings.HasPrefix(r.Message, "Could not run command from postrun_command: ") ||
			run.Disturbs() != (status == "changed") {
			t.Errorf("%s: whole %t, disturbs %t, %+v", status, run.Whole, run.Disturbs(), r)
		}
	}
}

func TestAForeignRunIsTold(t *testing.T) {
	run, err := leave(t, foreign(t, "7.23.0", "failed"))
	if err != nil {
		t.Fatal(err)
	}
	r := run.Result
	if r.Run != "d8c38fc7-44fd-4cfb-a257-c1ed5af072f2" || run.Puppet != "7.23.0" || run.Environment != "production" || !run.Disturbs() ||
		r.StartedAt.Format("15:04:05.000") != "22:29:12.026" || r.Duration().Milliseconds() != 50 {
		t.Errorf("%+v", run)
	}
	if want := (tutti.Counts{Total: 11, Changed: 2, Failed: 1, Skipped: 1, OutOfSync: 3}); r.Counts != want {
		t.Errorf("%+v, want %+v", r.Counts, want)
	}
}

func TestWhatIsNoReportOfThisNodeIsRefused(t *testing.T) {
	good := func(change ...string) string { return foreign(t, "8.10.0", "changed", change...) }
	for _, tc := range []struct{ reason, report, says string }{
		{"torn", good()[:3000], "it has no corrective_change"},
		{"no YAML", "\t", "no YAML"},
		{"huge", strings.Repeat("#\n", 5<<20), "at most"},
		{"of another host", good("host: web-01", "host: web-02"), `a report of "web-02", which is not a name of this machine`},
		{"no uuid", good("transaction_uuid: ", "transaction_uuid: x"), "not a UUID"},
		{"no time", good("time: '2026", "time: 'x2026"), "no report of Puppet"},
		{"of no year", good("time: '2026", "time: '0026"), "of the year 26"},
		{"other types", good("logs:\n", "logs: 1\nlogged:\n"), "no report of Puppet"},
	} {
		_, err := leave(t, tc.report)
		code := tutti.CodeOf(err)
		if code != tutti.CodeInvalid && code != tutti.CodeDamaged || !strings.Contains(fmt.Sprint(err), tc.says) || !strings.Contains(fmt.Sprint(err), "last_run_report.yaml") {
			t.Errorf("%s: %v (%s), want %q", tc.reason, err, code, tc.says)
		}
	}
}
