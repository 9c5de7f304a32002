package collect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/puppet"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// puppetLocks are the lock files of the vendors' and Debian's Puppet packages.
var puppetLocks = []string{
	"/opt/puppetlabs/puppet/cache/state/agent_catalog_run.lock",
	"/var/cache/puppet/state/agent_catalog_run.lock",
	"/var/lib/puppet/state/agent_catalog_run.lock",
}

// Node examines the node whose agent uses this directory. Node searches for Puppet under root.
func Node(ctx context.Context, of Part, root string) *doctor.Node {
	dir := of.Dir
	n := &doctor.Node{Process: Process(ctx, of)}
	_, n.Puppet = puppet.Find(root)
	n.Certname = Certname(ctx, root)
	n.Module = moduleFacts(dir, n.Running)
	runFacts(dir, n)
	n.Slow, n.FacterConf = slowFacts(dir)
	n.Locks = lockFacts()
	member, err := identity.LoadMembership(filepath.Join(dir, "identity"))
	if err != nil {
		return n // the agent's files are damaged or exposed; another check reports this
	}
	n.Name = member.Node
	again := "tutti leave --offline, then tutti join with a new token"
	if _, until, err := identity.JWTLife(member.JWT); err == nil {
		n.Credentials = append(n.Credentials, doctor.Credential{Name: "this node's JWT", File: filepath.Join(filepath.Join(dir, "identity"), "membership.json"), Ends: until, Notice: 30 * day, Mend: again})
	}
	config, err := identity.ClientTLS([]byte(member.CA))
	if err != nil {
		return n
	}
	n.Link = Link(ctx, member.Bus, config)
	if host, _, err := net.SplitHostPort(member.Bus); err == nil && n.Link.Err == nil {
		n.Link.Time = Clock(ctx, "https://"+net.JoinHostPort(host, strings.TrimPrefix(cli.DefaultListen, ":")), config)
	}
	return n
}

// Certname returns the name that Puppet has for this machine. If Puppet cannot tell the name, the result is empty.
// Certname need not return the error, because each run reports it.
func Certname(ctx context.Context, root string) doctor.Certname {
	name, configured, err := puppet.Local{Root: root}.Certname(ctx)
	if err != nil {
		return doctor.Certname{}
	}
	return doctor.Certname{Name: name, Configured: configured}
}

// moduleFacts compares the shipped module with the module in this binary.
func moduleFacts(dir string, running bool) string {
	digest, err := puppetmodule.Digest()
	if err != nil {
		return err.Error()
	}
	at := filepath.Join(dir, "module", digest[:16], "tutti")
	if !durable.Exists(at) {
		if running {
			return "the agent runs with the module of another release than this binary's"
		}
		return ""
	}
	changed := ""
	_ = fs.WalkDir(puppetmodule.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		want, err := fs.ReadFile(puppetmodule.FS(), path)
		have, _ := os.ReadFile(filepath.Join(at, path))
		if err == nil && !bytes.Equal(want, have) {
			changed = fmt.Sprintf("%s differs from the shipped file; remove %s", filepath.Join(at, path), filepath.Dir(at))
			return fs.SkipAll
		}
		return err
	})
	return changed
}

func lockFacts() []doctor.Lock {
	var out []doctor.Lock
	for _, path := range puppetLocks {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err == nil && !durable.Exists(fmt.Sprintf("/proc/%d", pid)) {
			out = append(out, doctor.Lock{Path: path, PID: pid})
		}
	}
	return out
}

// oldRun is the age from which an unfinished or unsent run is a finding. The agent may
// still be working on a younger run.
const oldRun = time.Minute

func runFacts(dir string, n *doctor.Node) {
	dirs, _ := filepath.Glob(filepath.Join(dir, "runs", "*"))
	refused := map[tutti.RunID]time.Time{}
	var taken time.Time // when the server last accepted a result
	for _, at := range dirs {
		run := tutti.RunID(filepath.Base(at))
		if sent, err := os.Stat(filepath.Join(at, "sent")); err == nil {
			if agent.Refused(at) != "" {
				refused[run] = sent.ModTime()
			} else if sent.ModTime().After(taken) {
				taken = sent.ModTime()
			}
			continue
		}
		info, err := os.Stat(at)
		if err != nil || !durable.Exists(filepath.Join(at, "run.json")) || time.Since(info.ModTime()) < oldRun {
			continue
		}
		if durable.Exists(filepath.Join(at, "result.json")) {
			n.Unsent = append(n.Unsent, run)
		} else if p, err := puppet.Adopt(at); err == nil && p == nil {
			n.Unended = append(n.Unended, run)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(refused)) {
		if refused[run].After(taken) {
			n.Refused = append(n.Refused, run)
		}
	}
}

// slowRuns is the number of consecutive runs in which a fact must be slow before doctor reports the fact. On a busy
// machine, facts are slow now and then.
const slowRuns = 3

// slowFacts returns the facts that were slow in each of the last runs, the slowest first. Each fact has
// its shortest time. The function also returns the path of Facter's configuration file.
func slowFacts(dir string) (slow []doctor.Fact, conf string) {
	files, _ := filepath.Glob(filepath.Join(dir, "runs", "*", "fact-use.json"))
	if len(files) < slowRuns {
		return nil, ""
	}
	times := map[string]time.Time{}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			times[file] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return times[b].Compare(times[a]) })
	var best map[string]float64
	for _, file := range files[:slowRuns] {
		var record struct {
			Slow map[string]float64 `json:"slow"`
			Conf string             `json:"conf"`
		}
		if raw, err := os.ReadFile(file); err != nil || json.Unmarshal(raw, &record) != nil {
			return nil, ""
		}
		if best == nil {
			best, conf = record.Slow, record.Conf
			continue
		}
		for name, seconds := range best {
			now, ok := record.Slow[name]
			if best[name] = min(seconds, now); !ok {
				delete(best, name)
			}
		}
	}
	for name, seconds := range best {
		slow = append(slow, doctor.Fact{Name: name, Cost: time.Duration(seconds * float64(time.Second))})
	}
	slices.SortFunc(slow, func(a, b doctor.Fact) int { return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Name, b.Name)) })
	return slow, conf
}
