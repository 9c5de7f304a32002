package puppet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// Local is the node's own Puppet outside of runs. Local reads Puppet's files, and allows or forbids Puppet to run.
// Any number of goroutines may use it.
type Local struct {
	Root string           // the directory below which Puppet is installed, normally "/"
	Now  func() time.Time // nil: time.Now
}

// The constants bound Puppet's files and the output of `puppet resource`, in bytes.
const (
	maxLockFile  = 64 << 10
	maxSummary   = 1 << 20
	maxLists     = 16 << 20
	maxResource  = 96 << 10
	resourceTime = time.Minute
)

func (l Local) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// Status reports what the node's Puppet is doing. It changes nothing. Status leaves a lock in place even if the
// lock's owner is gone.
func (l Local) Status() (tutti.PuppetStatus, error) {
	var out tutti.PuppetStatus
	c, err := ReadConfig(l.Root)
	if err != nil {
		return out, err
	}
	if out.DisableMessage, out.Enabled, err = readDisabled(c.DisabledLock); err != nil {
		return out, err
	}
	if out.Applying, err = held(c.RunLock); err != nil {
		return out, err
	}
	if out.DaemonPresent, err = held(c.PIDFile); err != nil {
		return out, err
	}
	out.Idling = out.DaemonPresent && !out.Applying
	ago := "never"
	if out.LastRun, err = readLastRun(c.LastRun); err != nil {
		return out, err
	}
	if out.LastRun > 0 {
		out.SinceLastRun = l.now().Unix() - out.LastRun
		ago = (time.Duration(out.SinceLastRun) * time.Second).String() + " ago"
	}
	switch {
	case !out.Enabled:
		out.Status = "disabled"
	case out.Applying:
		out.Status = "applying a catalog"
	case out.Idling:
		out.Status = "idling"
	default:
		out.Status = "stopped"
	}
	out.Message = fmt.Sprintf("Currently %s; last completed run %s", out.Status, ago)
	return out, nil
}

// readDisabled reads the file that disables Puppet. Puppet is disabled even if the file is not
// Puppet's JSON.
func readDisabled(file string) (message string, enabled bool, err error) {
	raw, err := excerpt.Read(file, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", true, nil
	}
	if err != nil {
		return "", false, tutti.Wrap(tutti.CodeUnavailable, err, "is Puppet disabled?")
	}
	var lock struct {
		Message string `json:"disabled_message"`
	}
	if bad := json.Unmarshal(raw, &lock); bad != nil {
		lock.Message = "reason not known: " + file + " is not what Puppet writes"
	}
	return lock.Message, false, nil
}

// Files returns what Puppet's own files say, apart from reports. Files returns CodeNotFound if Puppet is not installed.
// Files reads only.
func (l Local) Files() (tutti.PuppetFiles, error) {
	c, err := readConf(l.Root)
	if err != nil {
		return tutti.PuppetFiles{}, err
	}
	settings := c.settings("agent")
	lock, err := c.path(settings, "agent_disabled_lockfile")
	if err != nil {
		return tutti.PuppetFiles{}, err
	}
	out := tutti.PuppetFiles{Environment: short(c.named("environment")), Every: interval(c.named("runinterval"))}
	message, enabled, err := readDisabled(lock)
	if err != nil || enabled {
		return out, err
	}
	by, since, err := owner(lock)
	if err != nil {
		return tutti.PuppetFiles{}, tutti.Wrap(tutti.CodeUnavailable, err, "who has disabled Puppet?")
	}
	out.Disabled = &tutti.PuppetDisabled{By: by, Message: short(tutti.OneLine(message)), Since: since}
	return out, nil
}

// The function `owner` returns the name of a file's owner, or the owner's number, and when the file was last changed.
func owner(file string) (name string, since time.Time, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", time.Time{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", info.ModTime().UTC(), nil
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username, info.ModTime().UTC(), nil
	}
	return "uid " + id, info.ModTime().UTC(), nil
}

// held returns true if a lock file names a process that Puppet would take for a Puppet. The pid in an old lock
// may now belong to another process.
func held(file string) (bool, error) {
	raw, err := excerpt.Read(file, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, tutti.Wrap(tutti.CodeUnavailable, err, "is Puppet running?")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	return err == nil && pid > 0 && isPuppet(pid), nil
}

// isPuppet follows Puppet's own rule (util/pidlock). The name of the process is puppet…, or the process is a Ruby
// with puppet in its command line.
func isPuppet(pid int) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(proc, "comm"))
	if err != nil {
		return false
	}
	name := strings.TrimSpace(string(comm))
	if name == "puppet" || strings.HasPrefix(name, "puppet-") {
		return true
	}
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	return err == nil && strings.HasPrefix(name, "ruby") && bytes.Contains(args, []byte("puppet"))
}

// Enable allows Puppet to run. Enable returns false if Puppet was already enabled.
func (l Local) Enable() (changed bool, err error) {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return false, err
	}
	err = os.Remove(c.DisabledLock)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, tutti.Wrap(tutti.CodeUnavailable, err, "enable Puppet")
	}
	return true, durable.SyncDir(filepath.Dir(c.DisabledLock))
}

// Disable keeps Puppet from running, as `puppet agent --disable MESSAGE` does. Disable returns false if Puppet was
// already disabled. If Puppet is already disabled, Disable replaces the message only if `force` is true.
func (l Local) Disable(message string, force bool) (changed bool, err error) {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return false, err
	}
	if _, enabled, err := readDisabled(c.DisabledLock); err != nil || !enabled && !force {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(c.DisabledLock), 0o755); err != nil {
		return false, tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	err = durable.WriteFile(c.DisabledLock, DisabledBy(message), 0o644) // Puppet's own mode, because other users read the file
	return err == nil, tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
}

// summaryFile is the content of last_run_summary.yaml.
type summaryFile struct {
	Version struct {
		Config any `yaml:"config"`
	} `yaml:"version"`
	Resources map[string]int64   `yaml:"resources"`
	Time      map[string]float64 `yaml:"time"`
}

var lastRunRE = regexp.MustCompile(`\blast_run: *([0-9]+)`)

// readLastRun returns when Puppet last ran, in seconds since 1970. The function returns 0 if Puppet never ran.
// The function does not decode the rest of the summary, because many nodes get this question at once.
func readLastRun(file string) (int64, error) {
	raw, err := excerpt.Read(file, maxSummary)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, tutti.Wrap("", err, "Puppet's last run")
	}
	found := lastRunRE.FindSubmatch(raw)
	if found == nil {
		return 0, nil
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// readSummary returns nil if Puppet has never run.
func readSummary(file string) (*summaryFile, error) {
	raw, err := excerpt.Read(file, maxSummary)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tutti.Wrap("", err, "Puppet's last run")
	}
	var out summaryFile
	if err := yaml.Unmarshal(raw, &out); err != nil {
		return nil, tutti.Errorf(tutti.CodeDamaged, "%s is not what Puppet writes: %v", file, err)
	}
	return &out, nil
}

// Summary returns Puppet's summary of its last run. If the summary has no resources, the run ended before it applied a
// catalog. Summary returns CodeNotFound if there is no summary.
func (l Local) Summary() (tutti.RunSummary, error) {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return tutti.RunSummary{}, err
	}
	sum, err := readSummary(c.LastRun)
	switch {
	case err != nil:
		return tutti.RunSummary{}, err
	case sum == nil:
		return tutti.RunSummary{}, tutti.Errorf(tutti.CodeNotFound, "Puppet has not run here: there is no %s", c.LastRun)
	}
	out := tutti.RunSummary{LastRun: int64(sum.Time["last_run"])}
	if out.LastRun > 0 {
		out.SinceLastRun = l.now().Unix() - out.LastRun
	}
	if sum.Version.Config != nil {
		out.ConfigVersion = fmt.Sprint(sum.Version.Config)
	}
	total, applied := sum.Resources["total"]
	if !applied || total == 0 { // every catalog has resources, because Puppet's own stages count, too
		out.Failed, out.Message = true, "the last run failed before it applied a catalog: its summary has no resources"
		return out, nil
	}
	out.TotalResources, out.OutOfSyncResources = total, sum.Resources["out_of_sync"]
	out.FailedResources = sum.Resources["failed"] + sum.Resources["failed_to_restart"]
	out.CorrectedResources, out.ChangedResources = sum.Resources["corrective_change"], sum.Resources["changed"]
	out.ConfigRetrieval, out.TotalTime = sum.Time["config_retrieval"], sum.Time["total"]
	out.TypeDistribution, err = types(c.Resources)
	return out, err
}

// types counts the resources of Puppet's list by type.
func types(file string) (map[string]int, error) {
	out := map[string]int{}
	names, err := readLines(file)
	for _, ref := range names {
		if kind, _, ok := strings.Cut(ref, "["); ok {
			out[kind]++
		}
	}
	return out, err
}

// Classes returns the classes of the last catalog. Classes returns false if there is no
// list.
func (l Local) Classes() ([]string, bool) {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return nil, false
	}
	names, err := readLines(c.Classes)
	return names, err == nil && names != nil
}

// readLines returns nil if there is no file.
func readLines(file string) ([]string, error) {
	raw, err := excerpt.Read(file, maxLists)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "read one of Puppet's lists")
	}
	return slices.DeleteFunc(strings.Split(string(raw), "\n"), func(line string) bool { return line == "" }), nil
}

// Resource returns the state of one resource, or of all resources of a type, as `puppet resource --to_yaml` prints
// it, in JSON. It changes nothing. Resource takes as long as a start of Puppet.
func (l Local) Resource(ctx context.Context, kind, title string) (json.RawMessage, error) {
	if err := (tutti.RemoteRequest{Action: tutti.RemoteResource, Type: kind, Title: title}).Validate(); err != nil {
		return nil, err
	}
	args := []string{"--to_yaml", strings.ToLower(kind)}
	if title != "" {
		args = append(args, title)
	}
	out, err := l.ask(ctx, "resource", args...)
	if err != nil {
		return nil, err
	}
	if out.over {
		return nil, tutti.Errorf(tutti.CodeInvalid, "more than %d bytes of resources: name one resource", maxResource)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(out.text.Bytes(), &doc); err != nil {
		return nil, tutti.Errorf(tutti.CodeInternal, "puppet resource: %v", err)
	}
	return json.Marshal(doc)
}

// The method `ask` returns what a command of the node's Puppet writes to its standard output. It returns
// CodeNotFound if Puppet is not installed, and CodeDeadline if the command takes longer than resourceTime. If
// the command failed, it returns CodeInvalid, and the error contains the command's last output.
func (l Local) ask(ctx context.Context, command string, args ...string) (bounded, error) {
	var out, said bounded
	install, err := Find(l.Root)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, resourceTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, install.Ruby, append([]string{install.Puppet, command}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/puppetlabs/bin", "HOME=/root", "LANG=C.UTF-8"}
	cmd.WaitDelay = time.Second
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return out, tutti.Errorf(tutti.CodeDeadline, "puppet %s did not end in time", command)
		}
		return out, tutti.Errorf(tutti.CodeInvalid, "puppet %s: %v: %s", command, err, lastLine(said.text.String()))
	}
	return out, nil
}

// Certname returns the name that the node's Puppet has for this machine, and whether puppet.conf sets it. If
// puppet.conf does not set it, Certname runs Puppet, which takes seconds. Certname returns CodeNotFound if Puppet
// is not installed.
func (l Local) Certname(ctx context.Context) (name string, configured bool, err error) {
	c, err := ReadConfig(l.Root)
	if err != nil || c.Certname != "" {
		return c.Certname, c.Certname != "", err
	}
	out, err := l.ask(ctx, "config", "print", "certname", "--section", "agent")
	return strings.TrimSpace(out.text.String()), false, err
}

// HostCertificate returns the files of this machine's Puppet certificate and of its private key, as Puppet itself names
// them. HostCertificate runs Puppet, which takes seconds. It returns CodeNotFound if Puppet is not installed.
func (l Local) HostCertificate(ctx context.Context) (certificate, key string, err error) {
	out, err := l.ask(ctx, "config", "print", "hostcert", "hostprivkey", "--section", "agent")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(out.text.String()) {
		name, path, _ := strings.Cut(line, "=")
		switch strings.TrimSpace(name) {
		case "hostcert":
			certificate = strings.TrimSpace(path)
		case "hostprivkey":
			key = strings.TrimSpace(path)
		}
	}
	if certificate == "" || key == "" {
		return "", "", tutti.Errorf(tutti.CodeInvalid, "puppet config print hostcert hostprivkey printed no paths")
	}
	return certificate, key, nil
}

// Check checks the code in a directory with the node's Puppet, as Installation.Check does. The node's own modules count as
// well. Temporary files are in the directory `temporary`. Check returns CodeNotFound if Puppet is not installed.
func (l Local) Check(ctx context.Context, temporary, dir string) ([]tutti.CodeProblem, error) {
	install, err := Find(l.Root)
	if err != nil {
		return nil, err
	}
	out, err := l.ask(ctx, "config", "print", "basemodulepath", "--section", "user")
	if err != nil {
		return nil, err
	}
	modules := slices.DeleteFunc(filepath.SplitList(strings.TrimSpace(out.text.String())), func(dir string) bool { return dir == "" })
	return install.Check(ctx, temporary, dir, modules...)
}

// bounded keeps the first bytes that somebody writes to it.
type bounded struct {
	text bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := maxResource - b.text.Len()
	b.over = b.over || len(p) > room
	b.text.Write(p[:min(len(p), max(room, 0))])
	return len(p), nil
}

func lastLine(text string) string {
	all := slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
	if len(all) == 0 {
		return "it does not say why"
	}
	return all[len(all)-1]
}
