package doctor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/doctor"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// The function `well` returns the facts of a machine without problems. The machine is server, node and operator.
func well() doctor.Facts {
	process := func(name string) doctor.Process {
		return doctor.Process{Dir: "/" + name, Unit: "tutti-" + name + ".service", Enabled: true, Running: true, Pids: []int{7}, Free: 1 << 30, Keeps: 1 << 20}
	}
	credential := func(name string) []doctor.Credential {
		return []doctor.Credential{{Name: name, File: "/" + name, Ends: now.Add(60 * 24 * time.Hour), Notice: 30 * 24 * time.Hour, Mend: "renew " + name}}
	}
	link := doctor.Link{Address: "srv:8151", Time: now.Add(-time.Second)}
	return doctor.Facts{
		Now: now, Version: "1",
		Server: &doctor.Server{
			Process: process("server"), Credentials: credential("ca"), SyncAlways: true, Made: now.Add(-1000 * time.Hour), Backup: now.Add(-25 * time.Hour),
			Nodes: []api.NodeView{{Node: "db-01", SeenAt: now.Add(-time.Second)}},
		},
		Node:     &doctor.Node{Process: process("agent"), Name: "db-01", Certname: doctor.Certname{Name: "db-01"}, Credentials: credential("jwt"), Link: link},
		Operator: &doctor.Operator{Dir: "/operator", Name: "ada", Credentials: credential("operator"), Link: link},
	}
}

func TestAWellMachineHasNoFindings(t *testing.T) {
	if got := doctor.Examine(well()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := doctor.Examine(doctor.Facts{Now: now}); len(got) != 0 {
		t.Errorf("on a machine with nothing of a fleet: %+v", got)
	}
}

func TestEveryCheckFinds(t *testing.T) {
	away := errors.New("connection refused")
	cases := []struct {
		reason string
		spoil  func(f *doctor.Facts)
		check  string
		says   string // part of the finding or of its repair
	}{
		{"the agent was stopped", func(f *doctor.Facts) { f.Node.Running = false }, "unit", "systemctl start tutti-agent"},
		{"the server cannot start and said why", func(f *doctor.Facts) { f.Server.Running, f.Server.Said = false, "no" }, "unit", "it said: no"},
		{"a server without systemd", func(f *doctor.Facts) { f.Server.Running, f.Server.Unit = false, "" }, "unit", "tutti server --dir /server"},
		{"it starts once", func(f *doctor.Facts) { f.Node.Enabled = false }, "unit", "systemctl enable tutti-agent"},
		{"the package was upgraded under it", func(f *doctor.Facts) { f.Node.Replaced = true }, "binary", "systemctl restart tutti-agent"},
		{"somebody started a second agent", func(f *doctor.Facts) { f.Node.Pids = []int{7, 8} }, "processes", "[7 8]"},
		{"the disk is nearly full", func(f *doctor.Facts) { f.Server.Free = 1 << 20 }, "disk", "1 MiB are free"},
		{"a key was copied about", func(f *doctor.Facts) { f.Server.Exposed = []string{"/server/identity/ca.key"} }, "permissions", "chmod go= /server/identity/ca.key"},
		{"the CA ends within its notice", func(f *doctor.Facts) { f.Server.Credentials[0].Notice = 365 * 24 * time.Hour }, "credentials", "renew ca"},
		{"the node was off for long", func(f *doctor.Facts) { f.Node.Credentials[0].Ends = now.Add(-time.Hour) }, "credentials", "ended 2030-01-02"},
		{"the operator's ends soon", func(f *doctor.Facts) { f.Operator.Credentials[0].Ends = now.Add(time.Hour) }, "credentials", "renew operator"},
		{"a firewall", func(f *doctor.Facts) { f.Node.Link = doctor.Link{Address: "srv:8151", Err: away} }, "reach", "srv:8151"},
		{"another server answers", func(f *doctor.Facts) { f.Operator.Link = doctor.Link{Address: "srv:8150", Err: away, WrongCA: true} }, "ca", "tutti leave --offline"},
		{"no time source", func(f *doctor.Facts) { f.Node.Link.Time = now.Add(-time.Hour) }, "clock", "1h0m0s off"},
		{"an old copy of the log", func(f *doctor.Facts) { f.Server.Log = errors.New("ends at 3") }, "log", "tutti server restore"},
		{"a server that gave up durability", func(f *doctor.Facts) { f.Server.SyncAlways = false }, "sync", "fsync"},
		{"the timer does not run", func(f *doctor.Facts) { f.Server.Backup = now.Add(-27 * time.Hour) }, "backup", "made 2030-01-0"},
		{"nobody has made a backup", func(f *doctor.Facts) { f.Server.Backup = time.Time{} }, "backup", "systemctl enable --now tutti-backup.timer"},
		{"the CA was rotated since", func(f *doctor.Facts) {
			f.Server.Rotation = api.CARotation{Phase: tutti.RotationFinished, Since: now.Add(-time.Hour)}
		}, "backup", "before the CA was rotated"},
		{"a rotation stands still", func(f *doctor.Facts) {
			f.Server.Rotation = api.CARotation{Phase: tutti.RotationSwitched, Since: now.Add(-8 * 24 * time.Hour), Behind: []api.BehindRotation{{Node: "db-01"}}}
		}, "rotation", "switched since 2029-12-25T03:04:05Z; nodes and operators that are behind: 1"},
		{"a node was left behind", func(f *doctor.Facts) {
			f.Server.Rotation = api.CARotation{Phase: tutti.RotationFinished, Since: now.Add(-240 * time.Hour), Left: []tutti.NodeName{"db-01"}}
		}, "rotation", "tutti join --again"},
		{"a node trusts another CA", func(f *doctor.Facts) {
			f.Server.Rotation = api.CARotation{Behind: []api.BehindRotation{{Node: "db-01", Foreign: true, Why: "it trusts another CA"}}}
		}, "rotation", "node db-01: it trusts another CA"},
		{"a scrub found damage", func(f *doctor.Facts) {
			f.Server.Backup, f.Server.Scrubbed, f.Server.Damaged = now.Add(-25*time.Hour), now, []string{"a file of code: gone", "b", "c", "d"}
		}, "content", "a file of code: gone; b; c; and 1 more"},
		{"a destination of reports is away", func(f *doctor.Facts) {
			f.Server.Reports = []doctor.Reports{{Name: "pdb", Waiting: 7, Error: "no route", Since: now.Add(-time.Hour)}}
		}, "reports", "pdb gets no reports since 2030-01-02T02:04:05Z: no route"},
		{"a destination refuses reports", func(f *doctor.Facts) { f.Server.Reports = []doctor.Reports{{Name: "pdb", Parked: 2}} }, "reports", "tutti server reports retry pdb"},
		{"retention was faster", func(f *doctor.Facts) { f.Server.Reports = []doctor.Reports{{Name: "pdb", Dropped: 3}} }, "reports", "3 reports were never sent to pdb"},
		{"a mistake in reports.yaml", func(f *doctor.Facts) { f.Server.ReportsBad = errors.New("reports.yaml:2: bad") }, "reports", "reports.yaml:2: bad"},
		{"its disk is full", func(f *doctor.Facts) { f.Server.Asked = errors.New("full") }, "ask", "full"},
		{"the operator was revoked", func(f *doctor.Facts) { f.Operator.Asked = errors.New("revoked") }, "ask", "tutti operator create ada"},
		{"a node is silent", func(f *doctor.Facts) { f.Server.Nodes[0].SeenAt = now.Add(-time.Hour) }, "nodes", "db-01 was last heard of 1h0m0s ago"},
		{"a node never came", func(f *doctor.Facts) { f.Server.Nodes[0].SeenAt = time.Time{} }, "nodes", "has sent nothing"},
		{"a node's agent is too old", func(f *doctor.Facts) {
			f.Server.Nodes[0].Version, f.Server.Nodes[0].TooOldFor = "0.2.0", []tutti.Capability{"debug"}
		}, "nodes", "node db-01: its agent (0.2.0) does not know debug: upgrade tutti on db-01"},
		{"a grant of an old fleet file", func(f *doctor.Facts) { f.Server.Nodes[0].OldGrants = []string{"Service"} }, "nodes", "db-01 may export Service by grants"},
		{"a node's disk is full", func(f *doctor.Facts) { f.Server.Nodes[0].Trouble = "full" }, "nodes", "db-01 says: full"},
		{"Puppet was removed", func(f *doctor.Facts) { f.Node.Puppet = errors.New("no Puppet") }, "puppet", "install puppet-agent"},
		{"it joined under another name than Puppet's", func(f *doctor.Facts) { f.Node.Certname.Name = "db-01.example.com" }, "certname",
			`"db-01.example.com", and this machine is node "db-01"join under Puppet's name: tutti leave, then tutti token create --name db-01.example.com`},
		{"somebody has set the certname", func(f *doctor.Facts) { f.Node.Certname = doctor.Certname{Name: "db", Configured: true} }, "certname", "set certname db-01"},
		{"the module was edited", func(f *doctor.Facts) { f.Node.Module = "changed" }, "module", "systemctl restart tutti-agent"},
		{"Puppet was killed", func(f *doctor.Facts) { f.Node.Locks = []doctor.Lock{{Path: "/lock", PID: 9}} }, "locks", "rm /lock"},
		{"a run never ended", func(f *doctor.Facts) { f.Node.Unended = []tutti.RunID{"r"} }, "runs", "unfinished"},
		{"Facter loads all lenses", func(f *doctor.Facts) {
			f.Node.FacterConf, f.Node.Slow = "/f.conf", []doctor.Fact{{Name: "augeas", Cost: 1930 * time.Millisecond}, {Name: "b", Cost: time.Second}}
		}, "facts", `augeas 1.9 s, b 1.0 sif they change seldom, in /f.conf: facts : { ttls : [ { "augeas" : 1 days }, { "b" : 1 days } ] }`},
		{"a result that the server does not take", func(f *doctor.Facts) { f.Node.Refused = []tutti.RunID{"r"} }, "runs", "run the node again: tutti converge db-01"},
		{"an outbox that is not sent", func(f *doctor.Facts) { f.Node.Unsent = []tutti.RunID{"r"} }, "runs", "sends them by itself"},
	}
	found := map[string]bool{}
	for _, tc := range cases {
		f := well()
		tc.spoil(&f)
		got := doctor.Examine(f)
		if len(got) != 1 || got[0].Check != tc.check || !strings.Contains(got[0].What+got[0].Mend, tc.says) || got[0].Means == "" || got[0].Mend == "" {
			t.Errorf("%s: %+v, want one of %s that says %q", tc.reason, got, tc.check, tc.says)
		}
		found[tc.check] = true
	}
	untested := slices.DeleteFunc(doctor.Names(), func(name string) bool { return found[name] })
	if diff := cmp.Diff([]string{}, untested); diff != "" {
		t.Errorf("checks that no case makes find something:\n%s", diff)
	}
}
