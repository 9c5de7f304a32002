package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/internal/space"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

const (
	serverUnit  = "tutti-server.service"
	lookTimeout = 5 * time.Second
	day         = 24 * time.Hour
)

// puppetLocks are where the Puppets of the vendors and of Debian keep their lock.
var puppetLocks = []string{
	"/opt/puppetlabs/puppet/cache/state/agent_catalog_run.lock",
	"/var/cache/puppet/state/agent_catalog_run.lock",
	"/var/lib/puppet/state/agent_catalog_run.lock",
}

// examine gathers what is known of this machine and has it examined. It changes
// nothing.
func examine(ctx context.Context, o cli.Examine) []doctor.Finding {
	f := doctor.Facts{Now: now(), Version: Version}
	if exists(filepath.Join(o.ServerDir, serverConfigFile)) {
		f.Server = serverFacts(ctx, o)
	}
	if exists(filepath.Join(identityDir(o.AgentDir), "membership.json")) {
		f.Node = nodeFacts(ctx, o.AgentDir, o.Root)
	}
	f.Operator = operatorFacts(ctx, o.Connection)
	f.Now = now() // after what was asked of others
	return doctor.Examine(f)
}

func serverFacts(ctx context.Context, o cli.Examine) *doctor.Server {
	dir := filepath.Join(o.ServerDir, "identity")
	s := &doctor.Server{Process: processFacts(ctx, "server", o.ServerDir, serverUnit, defaultReserve), SyncAlways: true}
	s.Credentials = []doctor.Credential{
		certificate("the fleet's CA", filepath.Join(dir, "ca.crt"), 365*day, "a CA is not renewed by itself: tutti rotate ca, while the fleet runs"),
		certificate("the server's certificate", filepath.Join(dir, "server.crt"), 30*day, "systemctl restart tutti-server"),
	}
	s.Backup, s.Made = lastBackup(o.ServerDir)
	scrub := lastScrub(o.ServerDir)
	s.Scrubbed, s.Damaged = scrub.At, scrub.Damaged
	if !s.Running {
		s.Log = lostLog(o.ServerDir)
		return s
	}
	var says runningFile
	if raw, err := os.ReadFile(filepath.Join(o.ServerDir, runningName)); err == nil && json.Unmarshal(raw, &says) == nil {
		s.SyncAlways = says.SyncAlways
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client, err := connectLocal(ConnectOptions{Socket: o.Connection.Socket, OperatorDir: o.Connection.OperatorDir})
	if err == nil {
		s.Nodes, err = client.ListNodes(ctx)
	}
	if err == nil {
		s.Rotation, _ = client.ShowCARotation(ctx) // a server of an earlier release does not rotate
	}
	s.Asked = err
	return s
}

// lostLog says what the server would say of its log at its next start.
func lostLog(dir string) error {
	if !exists(filepath.Join(dir, headFile)) {
		return nil
	}
	h, err := openHead(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil // the permissions' business
	}
	defer h.file.Close()
	files := filepath.Join(dir, "jetstream")
	if err := h.inFiles(files); err != nil {
		return err
	}
	return openContent(dir).inFiles(files)
}

func nodeFacts(ctx context.Context, dir, root string) *doctor.Node {
	n := &doctor.Node{Process: processFacts(ctx, "agent", dir, agentUnit, agentReserve)}
	_, n.Puppet = puppet.Find(root)
	n.Certname = certname(ctx, root)
	n.Module = moduleFacts(dir, n.Running)
	runFacts(dir, n)
	n.Slow, n.FacterConf = slowFacts(dir)
	n.Locks = lockFacts()
	member, err := identity.LoadMembership(identityDir(dir))
	if err != nil {
		return n // its files are damaged, or exposed: found as that
	}
	n.Name = member.Node
	again := "tutti leave --offline, then tutti join with a new token"
	if _, until, err := identity.JWTLife(member.JWT); err == nil {
		n.Credentials = append(n.Credentials, doctor.Credential{Name: "this node's JWT", File: filepath.Join(identityDir(dir), "membership.json"), Ends: until, Notice: 30 * day, Mend: again})
	}
	config, err := identity.ClientTLS([]byte(member.CA))
	if err != nil {
		return n
	}
	n.Link = lookAt(ctx, member.Bus, config)
	if host, _, err := net.SplitHostPort(member.Bus); err == nil && n.Link.Err == nil {
		n.Link.Time = clockOf(ctx, "https://"+net.JoinHostPort(host, strings.TrimPrefix(cli.DefaultListen, ":")), config)
	}
	return n
}

// certname is unknown if Puppet does not say it: a Puppet that cannot say it says so at each run, too.
func certname(ctx context.Context, root string) doctor.Certname {
	name, configured, err := puppet.Local{Root: root}.Certname(ctx)
	if err != nil {
		return doctor.Certname{}
	}
	return doctor.Certname{Name: name, Configured: configured}
}

// operatorFacts are nil where no operator is.
func operatorFacts(ctx context.Context, c cli.Connection) *doctor.Operator {
	out := &doctor.Operator{Dir: c.OperatorDir}
	bundle, err := identity.LoadOperator(c.OperatorDir)
	if noOperator(err) {
		return nil
	}
	if err != nil {
		out.Asked = err
		return out
	}
	out.Name = bundle.Name
	out.Credentials = []doctor.Credential{{
		Name: "the certificate of operator " + bundle.Name, File: c.OperatorDir, Ends: bundle.Expires(), Notice: 30 * day,
		Mend: "any command renews it; one that has ended: on the server, as root: tutti operator create " + bundle.Name,
	}}
	if c.Server == "" {
		raw, err := os.ReadFile(filepath.Join(c.OperatorDir, operatorServerFile))
		if err != nil {
			out.Asked = err
			return out
		}
		c.Server = strings.TrimSpace(string(raw))
	}
	address := strings.TrimPrefix(c.Server, "https://")
	out.Link = lookAt(ctx, address, bundle.TLS())
	if out.Link.Err != nil {
		return out
	}
	out.Link.Time = clockOf(ctx, c.Server, bundle.TLS())
	client, err := Connect(ConnectOptions(c))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		_, err = client.ListNodes(ctx)
	}
	out.Asked = err
	return out
}

func processFacts(ctx context.Context, verb, dir, unitName string, keeps uint64) doctor.Process {
	p := doctor.Process{Dir: dir, Keeps: keeps}
	pid := holder(filepath.Join(dir, "lock"))
	p.Running = pid != 0
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		p.Replaced = strings.HasSuffix(exe, " (deleted)")
	}
	p.Pids = pidsOf(verb, dir)
	if room, err := space.Of(dir); err == nil {
		p.Free, p.Keeps = room.Free, min(keeps, room.Total/20)
	}
	_ = filepath.WalkDir(filepath.Join(dir, "identity"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // what cannot be looked at cannot be said
		}
		if info, err := e.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			p.Exposed = append(p.Exposed, path)
		}
		return nil
	})
	if exists("/run/systemd/system") && (exists(filepath.Join(unitDir, unitName)) || exists(filepath.Join(packagedUnit, unitName))) {
		p.Unit = unitName
		p.Enabled = exec.CommandContext(ctx, "systemctl", "is-enabled", "--quiet", unitName).Run() == nil
		if !p.Running {
			said, _ := exec.CommandContext(ctx, "journalctl", "-q", "-n", "1", "-o", "cat", "-t", "tutti", "-u", unitName).Output()
			p.Said = strings.TrimSpace(string(said))
		}
	}
	return p
}

// holder returns the process that holds a lock file, 0 if none does.
func holder(path string) int {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return 0
	}
	raw, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil {
			return pid
		}
	}
	return 0
}

// pidsOf returns the processes `tutti VERB` of a directory.
func pidsOf(verb, dir string) []int {
	var out []int
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		raw, err := os.ReadFile(path)
		args := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
		if err != nil || len(args) < 2 || filepath.Base(args[0]) != "tutti" || args[1] != verb || len(args) > 2 && !strings.HasPrefix(args[2], "-") {
			continue
		}
		of := map[string]string{"server": cli.DefaultServerDir, "agent": cli.DefaultAgentDir}[verb]
		if i := slices.Index(args, "--dir"); i > 0 && i+1 < len(args) {
			of = args[i+1]
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && sameDir(pid, of, dir) {
			out = append(out, pid)
		}
	}
	return out
}

// sameDir reports whether a process means dir by the path of.
func sameDir(pid int, of, dir string) bool {
	if !filepath.IsAbs(of) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil {
			return false
		}
		of = filepath.Join(cwd, of)
	}
	return filepath.Clean(of) == dir
}

func certificate(name, path string, notice time.Duration, mend string) doctor.Credential {
	c := doctor.Credential{Name: name, File: path, Notice: notice, Mend: mend}
	raw, _ := os.ReadFile(path)
	if block, _ := pem.Decode(raw); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			c.Ends = cert.NotAfter
		}
	}
	return c // one that cannot be read has ended for everybody
}

// lookAt finishes TLS with a server and says nothing.
func lookAt(ctx context.Context, address string, config *tls.Config) doctor.Link {
	out := doctor.Link{Address: address}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	out.Err = err
	_, out.WrongCA = errors.AsType[*tls.CertificateVerificationError](err)
	return out
}

// clockOf is the server's time, zero if it does not say.
func clockOf(ctx context.Context, url string, config *tls.Config) time.Time {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return time.Time{}
	}
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return time.Time{}
	}
	defer resp.Body.Close()
	at, _ := http.ParseTime(resp.Header.Get("Date"))
	return at
}

// moduleFacts compares the shipped module with that of this binary.
func moduleFacts(dir string, running bool) string {
	digest, err := puppetmodule.Digest()
	if err != nil {
		return err.Error()
	}
	at := filepath.Join(dir, "module", digest[:16], "tutti")
	if !exists(at) {
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
			changed = fmt.Sprintf("%s is not as it was shipped; remove %s", filepath.Join(at, path), filepath.Dir(at))
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
		if err == nil && !exists(fmt.Sprintf("/proc/%d", pid)) {
			out = append(out, doctor.Lock{Path: path, PID: pid})
		}
	}
	return out
}

// oldRun is how long a run may be without an end or a taker before that is a
// finding: the agent may just be at it.
const oldRun = time.Minute

func runFacts(dir string, n *doctor.Node) {
	dirs, _ := filepath.Glob(filepath.Join(dir, "runs", "*"))
	refused := map[tutti.RunID]time.Time{}
	var taken time.Time // the last result that the server took
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
		if err != nil || !exists(filepath.Join(at, "run.json")) || time.Since(info.ModTime()) < oldRun {
			continue
		}
		if exists(filepath.Join(at, "result.json")) {
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

// slowRuns is in how many runs, one after the other, a fact has to be slow: a busy
// machine has slow ones now and then.
const slowRuns = 3

// slowFacts are the facts that were slow in each of the last runs, the most first, at
// their best, and where Facter is configured.
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
