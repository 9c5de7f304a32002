package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/compare"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// recorded is what Puppet compiled for a diff (puppet/spec/record_catalog.rb).
type recorded struct {
	Keys    []tutti.KeyRead `json:"keys"`
	Catalog json.RawMessage `json:"catalog"`
	after   json.RawMessage // the catalog of the second code
}

// catalogOf returns the recorded catalog as the nodes of a role would have compiled it. Each role has its own sites. The
// second code has another timeout of a proxy.
func catalogOf(b *testing.B, role int) recorded {
	b.Helper()
	file, err := os.Open("testdata/catalog.json.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := io.ReadAll(in)
	if err != nil {
		b.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte("example.net"), fmt.Appendf(nil, "r%02d.example.net", role))
	var out recorded
	if err := json.Unmarshal(raw, &out); err != nil {
		b.Fatal(err)
	}
	out.after = bytes.ReplaceAll(out.Catalog, []byte("client 50s"), []byte("client 60s"))
	for i := range role { // the roles look up different keys
		out.Keys = append(out.Keys, tutti.KeyRead{Key: fmt.Sprintf("role%02d::key%d", role, i)})
	}
	return out
}

// cpu returns how much CPU this process has used. On a machine with other work, it says more than the time.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkDiff compares two codes on 20 roles with 200 nodes each. 200 nodes at a time claim, compile at once, hand over
// the hiera keys of their role and end. The nodes of the first role have collected, and their catalogs differ. They read and
// compare catalogs that Puppet has compiled. The time is all that a diff takes beside the compiles.
func BenchmarkDiff(b *testing.B) {
	const roles, each, atOnce = 20, 200, 200
	f := servertest.Start(b, func(o *server.Options) { o.Silence = time.Hour })
	var of [roles]recorded
	for role := range roles {
		of[role] = catalogOf(b, role)
	}
	compared := func(r recorded) tutti.CatalogDiff {
		before, err := compare.Read(r.Catalog)
		if err != nil {
			b.Error(err)
		}
		after, err := compare.Read(r.after)
		if err != nil {
			b.Error(err)
		}
		return compare.Complete(before, after)
	}
	changes := len(compared(of[0]).Changes)
	if changes == 0 {
		b.Fatal("the recorded catalogs are equal")
	}
	roleOf := map[tutti.NodeName]int{}
	groups := ""
	var names []tutti.NodeName
	nodes := map[tutti.NodeName]*servertest.Node{}
	for role := range roles {
		groups += fmt.Sprintf("  r%02d: {nodes: [", role)
		for i := range each {
			name := tutti.NodeName(fmt.Sprintf("r%02d-%03d", role, i))
			groups += string(name) + ", "
			names, nodes[name], roleOf[name] = append(names, name), f.Join(name), role
			nodes[name].Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
				out := tutti.RemoteReply{Verdict: tutti.RemoteOK}
				if len(q.Jobs) > 0 {
					diff := compared(of[role])
					out.Diff = &diff
				}
				return out
			})
		}
		groups += "]}\n"
	}
	setFleet(b, f, "fleet: scale\nenvironment: {name: production, path: ./code}\ngroups:\n"+groups+"grants: [{to: r00, exports: [Host]}]\n")
	f.PushSite("# now")
	var compiles atomic.Int64
	compile := func(n *servertest.Node, first bool, code string) bool {
		o := n.Claimed()
		if o == nil {
			return false
		}
		in := wire.Gate{Run: o.Run, Keys: of[roleOf[n.Name]].Keys}
		in.Catalog = tutti.DigestOf([]byte(n.Name))
		if first {
			in.Catalog = tutti.DigestOf([]byte(code))
			in.Exports = []tutti.Export{{Type: "Host", Title: string(n.Name)}}
			in.Reads = []tutti.Read{n.Read(o.Run, hosts)}
		}
		for n.Gate(in).Verdict != tutti.GateStop { // the decision may come a moment after the first answer
		}
		r := servertest.Result(o.Run, "")
		r.Stopped, r.Phase = true, "gate"
		if err := n.Call(wire.OpResult, r, nil); err != nil {
			b.Error(err)
		}
		compiles.Add(1)
		return true
	}
	both := func(code string) tutti.JobID {
		job, err := f.StartDiff(code, names...)
		if err != nil {
			b.Fatal(err)
		}
		for f.Job(job).Verdict == "" { // nodes compile until the job has ended
			var working sync.WaitGroup
			todo := make(chan tutti.NodeName)
			for range atOnce {
				working.Go(func() {
					for name := range todo {
						compile(nodes[name], name < "r01", code)
					}
				})
			}
			for _, name := range names {
				todo <- name
			}
			close(todo)
			working.Wait()
		}
		if got := f.Job(job); got.Verdict != tutti.VerdictSucceeded {
			b.Fatalf("%s: %s", got.Verdict, got.Message)
		}
		return job
	}
	for b.Loop() {
		began, before := compiles.Load(), cpu(b)
		jobs := []tutti.JobID{both("# one"), both("# two")}
		differ := 0
		err := f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: tutti.RemoteDiff, On: `"r00" in groups`, Jobs: jobs, Wait: time.Minute}, func(all []api.NodeAnswer) error {
			for _, a := range all {
				if a.Diff != nil && len(a.Diff.Changes) == changes {
					differ++
				}
			}
			return nil
		})
		if err != nil || differ != each {
			b.Fatalf("%d nodes differ: %v", differ, err)
		}
		b.ReportMetric(float64(compiles.Load()-began), "compiles/diff")
		b.ReportMetric((cpu(b) - before).Seconds(), "cpu-s/diff")
	}
}
