package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// Base returns the directory that holds the base of d and builds it if it is
// not in the cache: about a minute, longer with many packages. A base is never
// changed once it is there; nothing may write to it. A build that was killed
// leaves no usable base, and two builds of one base wait for each other.
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
	from := ""
	if !d.isPlain() {
		if from, err = m.Base(ctx, d.plain()); err != nil {
			return "", err
		}
	}
	if err := m.build(ctx, d.normal(), from, dir); err != nil {
		return "", tutti.Wrap("", err, "build base %s", filepath.Base(dir))
	}
	return dir, nil
}

// complete tells whether a base is there. Its name appears by rename, last.
func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

//go:embed plain.sh
var plainScript string

//go:embed bake.sh
var bakeScript string

// build makes the base beside its final name and renames it. What a killed
// build left beside it is removed first.
func (m Machine) build(ctx context.Context, d Definition, from, dir string) error {
	sources, settings, err := m.apt(ctx, d.Release)
	if err != nil {
		return err
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	script := plainScript
	if from != "" {
		script = bakeScript
	}
	env := append(proxyEnv(settings),
		"PATH="+systemPath, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
		"release="+d.Release, "root="+part, "from="+from,
		"mirror="+sources.archives[0].uri, "keyring="+sources.archives[0].keyring,
		"sources="+sources.text, "settings="+settings,
		"packages="+strings.Join(d.Packages, " "),
		"enabled="+strings.Join(d.Enabled, " "),
		"facter="+facterConfig(d.CachedFacts))
	start := time.Now()
	m.logf("building base %s", filepath.Base(dir))
	if err := m.runBuild(ctx, script, env, dir+".log"); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return err
	}
	m.logf("built base %s in %s", filepath.Base(dir), time.Since(start).Round(time.Second))
	return nil
}

// runBuild runs the script in process and mount namespaces of its own: what it
// starts or mounts ends with it. All it prints goes to the file at logPath.
func (m Machine) runBuild(ctx context.Context, script string, env []string, logPath string) error {
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "unshare", contained("sh", "-c", script)...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	if err := runAttached(cmd); err != nil {
		return fmt.Errorf("%w; the last lines of %s:\n%s", err, logPath, tail(logPath, 8))
	}
	return nil
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// contained are the arguments with which unshare runs args so that no process
// and no mount of theirs outlives unshare.
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

// facterConfig lets Facter answer the named facts from its cache. A fact that
// does not change on a lab host need not be computed in each run: augeas alone
// is nearly half of an empty Puppet run. The bake fills the cache. No facts is no
// file.
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

// aptSources are the archives for a base and the sources.list that names them.
type aptSources struct {
	archives []archive
	text     string
}

// apt returns the archives and the apt.conf for hosts of the release.
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
