package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// Base returns the directory of the base for definition d. If the base is not in the cache, Base builds it. Building
// a base takes about a minute, or longer with many packages. A complete base never changes, so nobody may write to
// it. If a build is killed, the base does not appear. If two processes build the same base, one process waits for the
// other process.
func (m Machine) Base(ctx context.Context, d Definition) (string, error) {
	if err := d.Validate(); err != nil {
		return "", err
	}
	if err := Check(); err != nil {
		return "", err
	}
	dir := filepath.Join(m.cache(), d.dirName())
	if complete(dir) {
		return dir, nil
	}
	lock, err := m.lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if complete(dir) {
		return dir, nil
	}
	b := building{Definition: d.normal(), dir: dir, lock: lock}
	if parent, ok := d.parent(); ok {
		if b.from, err = m.Base(ctx, parent); err != nil {
			return "", err
		}
	}
	if err := m.build(ctx, b); err != nil {
		return "", tutti.Wrap("", err, "build base %s", filepath.Base(dir))
	}
	return dir, nil
}

// The type `building` is a base while it is being built. Only the process with the lock writes to
// the base.
type building struct {
	Definition
	from string   // directory of the parent base, empty if there is no parent
	dir  string   // the directory of the complete base
	lock *os.File // locked while the base is being built
}

// The method `part` returns the base's directory before the base is complete.
func (b building) part() string { return b.dir + ".part" }

// The method `log` returns the path of the file with the output of the programs that build the
// base.
func (b building) log() string { return b.dir + ".log" }

// The function `complete` reports whether a base is complete. A base gets its final name by a
// rename at the end of its build.
func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

//go:embed plain.sh
var plainScript string

//go:embed bake.sh
var bakeScript string

// The method `build` builds the base under a temporary name and then renames it. Before that, the method removes the
// rest of a build that was killed.
func (m Machine) build(ctx context.Context, b building) error {
	for _, left := range []string{b.part(), b.log()} {
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	start := time.Now()
	m.logf("building base %s", filepath.Base(b.dir))
	way := m.install
	if b.Preparation.Script != "" {
		way = m.prepare
	}
	if err := way(ctx, b); err != nil {
		return errors.Join(err, os.RemoveAll(b.part()))
	}
	if err := os.Rename(b.part(), b.dir); err != nil {
		return err
	}
	m.logf("built base %s in %s", filepath.Base(b.dir), time.Since(start).Round(time.Second))
	return nil
}

// The method `install` builds a plain base with debootstrap. For any other base, the method copies the
// parent and adds packages.
func (m Machine) install(ctx context.Context, b building) error {
	sources, settings, err := m.apt(ctx, b.Release)
	if err != nil {
		return err
	}
	script := plainScript
	if b.from != "" {
		script = bakeScript
	}
	return b.contained(ctx, script, append(proxyEnv(settings),
		"DEBIAN_FRONTEND=noninteractive", "release="+b.Release,
		"mirror="+sources.archives[0].uri, "keyring="+sources.archives[0].keyring,
		"sources="+sources.text, "settings="+settings,
		"packages="+strings.Join(b.Packages, " "),
		"enabled="+strings.Join(b.Enabled, " "),
		"facter="+facterConfig(b.CachedFacts)))
}

// The method `contained` runs a script that builds $root from $from. The script has its own process and mount
// namespaces. Its processes and mounts end with the script.
func (b building) contained(ctx context.Context, script string, env []string) error {
	cmd := exec.CommandContext(ctx, "unshare", contained("sh", "-c", script)...)
	cmd.Env = slices.Concat(env, []string{"PATH=" + systemPath, "LC_ALL=C.UTF-8", "root=" + b.part(), "from=" + b.from})
	return b.logged(cmd, runAttached)
}

// The method `logged` calls the function `run` with a command. The output of the command goes to the
// base's log. If the command fails, the error contains the last lines of that output.
func (b building) logged(cmd *exec.Cmd, run func(*exec.Cmd) error) error {
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := run(cmd); err != nil {
		return fmt.Errorf("%w; the last lines of %s:\n%s", err, b.log(), tail(b.log(), 8))
	}
	return nil
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// The function `contained` returns the arguments with which unshare runs the command `args`. No process and
// no mount of this command stays after unshare has ended.
func contained(args ...string) []string {
	return append([]string{
		"--mount", "--propagation", "slave", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--",
	}, args...)
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// facterConfig returns a configuration with which Facter reads the named facts from its cache. Facts
// that never change on a lab host do not have to be computed in each run. The fact augeas alone takes
// nearly half of the time of an empty Puppet run. Building the base fills the cache. If there are no
// facts, the configuration is empty and not written.
func facterConfig(facts []string) string {
	if len(facts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("facts : {\n  ttls : [\n")
	for _, f := range facts {
		fmt.Fprintf(&b, "    { %q : 30 days },\n", f)
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

// aptSources are the archives for a base, and the sources.list with these archives.
type aptSources struct {
	archives []archive
	text     string
}

// The method `apt` returns the archives and the apt.conf for hosts of the release.
func (m Machine) apt(ctx context.Context, release string) (aptSources, string, error) {
	found, err := archives(ctx, m.Mirror)
	if err != nil {
		return aptSources{}, "", err
	}
	settings, err := aptSettings(ctx)
	if err != nil {
		return aptSources{}, "", err
	}
	return aptSources{archives: found, text: sources(found, release)}, settings, nil
}
