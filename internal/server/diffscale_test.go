package server_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/compare"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// BenchmarkDiff compares two codes on 20 roles with 200 nodes each. 200 nodes at a time claim, compile at once, hand over
// 500 keys and end. The nodes of the first role have collected, and differ in a catalog of 500 resources. The time is all
// that a diff takes beside the compiles.
func BenchmarkDiff(b *testing.B) {
	const roles, each, atOnce, resources = 20, 200, 200, 500
	f := servertest.Start(b, func(o *server.Options) { o.Silence = time.Hour })
	catalog := func(content string) compare.Catalog {
		out := compare.Catalog{Resources: map[string]compare.Resource{}, Sources: map[string]string{}, Lib: "x"}
		for i := range resources {
			out.Resources[fmt.Sprintf("File[/etc/app/%d.conf]", i)] = compare.Resource{
				Tags: []string{"app", "class", "file"}, Parameters: map[string]json.RawMessage{"ensure": json.RawMessage(`"file"`), "content": json.RawMessage(content)},
			}
		}
		return out
	}
	before, after := catalog(`"before"`), catalog(`"after"`)
	groups := ""
	var names []tutti.NodeName
	nodes := map[tutti.NodeName]*servertest.Node{}
	for role := range roles {
		groups += fmt.Sprintf("  r%02d: {nodes: [", role)
		for i := range each {
			name := tutti.NodeName(fmt.Sprintf("r%02d-%03d", role, i))
			groups += string(name) + ", "
			names, nodes[name] = append(names, name), f.Join(name)
			nodes[name].Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
				out := tutti.RemoteReply{Verdict: tutti.RemoteOK}
				if len(q.Jobs) > 0 {
					diff := compare.Catalogs(before, after)
					out.Diff = &diff
				}
				return out
			})
		}
		groups += "]}\n"
	}
	setFleet(b, f, "fleet: scale\nenvironment: {name: production, path: ./code}\ngroups:\n"+groups+"grants: [{to: r00, exports: [Host]}]\n")
	f.PushSite("# now")
	keys := make([]tutti.KeyRead, 500)
	for i := range keys {
		keys[i].Key = fmt.Sprint("key", i)
	}
	var compiles atomic.Int64
	compile := func(n *servertest.Node, first bool, code string) bool {
		o := n.Claimed()
		if o == nil {
			return false
		}
		in := wire.Gate{Run: o.Run, Keys: keys}
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
		began := compiles.Load()
		jobs := []tutti.JobID{both("# one"), both("# two")}
		differ := 0
		err := f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: tutti.RemoteDiff, On: `"r00" in groups`, Jobs: jobs, Wait: time.Minute}, func(all []api.NodeAnswer) error {
			for _, a := range all {
				if a.Diff != nil && len(a.Diff.Changes) == resources {
					differ++
				}
			}
			return nil
		})
		if err != nil || differ != each {
			b.Fatalf("%d nodes differ: %v", differ, err)
		}
		b.ReportMetric(float64(compiles.Load()-began), "compiles/diff")
	}
}
