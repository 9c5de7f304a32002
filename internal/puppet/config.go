package puppet

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// Config contains the paths and names that a Puppet uses. ReadConfig reads these values from puppet.conf without
// Puppet, because a start of Puppet takes seconds. `puppet config print --section agent` prints the same values.
type Config struct {
	DisabledLock string // agent_disabled_lockfile
	RunLock      string // agent_catalog_run_lockfile
	LastRun      string // lastrunfile
	Resources    string // resourcefile
	Classes      string // classfile
	PIDFile      string // pidfile
	LastReport   string // lastrunreport
	Environment  string // environment; production if puppet.conf names no environment
	Certname     string // certname; empty if puppet.conf does not name it: Puppet then derives the name from the host's name
}

// These variables contain Puppet's own defaults. `common` has the defaults that are the same in
// all packages. `packaged` has the defaults that differ between the vendor's and Debian's
// packages. The paths are below root.
var (
	common = map[string]string{
		"statedir": "$vardir/state", "publicdir": "$vardir/public", "agent_disabled_lockfile": "$statedir/agent_disabled.lock",
		"agent_catalog_run_lockfile": "$statedir/agent_catalog_run.lock", "lastrunfile": "$publicdir/last_run_summary.yaml",
		"resourcefile": "$statedir/resources.txt", "classfile": "$statedir/classes.txt", "pidfile": "$rundir/agent.pid",
		"lastrunreport": "$statedir/last_run_report.yaml", "environment": "production",
	}
	packaged = []map[string]string{
		{
			"confdir": "/etc/puppetlabs/puppet", "vardir": "/opt/puppetlabs/puppet/cache", "rundir": "/var/run/puppetlabs",
			"publicdir": "/opt/puppetlabs/puppet/public", "logdir": "/var/log/puppetlabs/puppet", "codedir": "/etc/puppetlabs/code",
		},
		{"confdir": "/etc/puppet", "vardir": "/var/cache/puppet", "rundir": "/run/puppet", "logdir": "/var/log/puppet", "codedir": "/etc/puppet/code"},
	}
)

// ReadConfig reads the settings of the Puppet below root (normally "/"). If ReadConfig cannot resolve a setting, it
// returns an error that names the setting, and does not guess.
func ReadConfig(root string) (Config, error) {
	conf, err := readConf(root)
	if err != nil {
		return Config{}, err
	}
	settings := conf.settings("agent")
	out := Config{Environment: settings["environment"], Certname: settings["certname"]}
	for name, to := range map[string]*string{
		"agent_disabled_lockfile": &out.DisabledLock, "agent_catalog_run_lockfile": &out.RunLock, "lastrunfile": &out.LastRun,
		"resourcefile": &out.Resources, "classfile": &out.Classes, "pidfile": &out.PIDFile, "lastrunreport": &out.LastReport,
	} {
		if *to, err = conf.path(settings, name); err != nil {
			return Config{}, err
		}
	}
	return out, nil
}

// conf is a puppet.conf and the defaults of its Puppet.
type conf struct {
	root, file string
	defaults   map[string]string
	sections   map[string]map[string]string
}

func readConf(root string) (conf, error) {
	install, err := Find(root)
	if err != nil {
		return conf{}, err
	}
	settings := maps.Clone(common)
	for i, p := range places {
		if install.Ruby == filepath.Join(root, p.Ruby) {
			maps.Copy(settings, packaged[i])
		}
	}
	out := conf{root: root, file: filepath.Join(root, settings["confdir"], "puppet.conf"), defaults: settings}
	raw, err := excerpt.Read(out.file, maxLists)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, tutti.Wrap(tutti.CodeUnavailable, err, "Puppet's settings")
	}
	out.sections = parseConf(string(raw))
	return out, nil
}

// settings returns the settings of a Puppet that reads this section and the section `main`.
func (c conf) settings(section string) map[string]string {
	out := maps.Clone(c.defaults)
	maps.Copy(out, c.sections["main"])
	maps.Copy(out, c.sections[section])
	return out
}

// The method `named` returns a setting that puppet.conf names for `puppet agent`. It returns an empty string for a setting
// that puppet.conf leaves at its default.
func (c conf) named(name string) string {
	return cmp.Or(c.sections["agent"][name], c.sections["main"][name])
}

// units are the units of Puppet's durations (puppet/settings/duration_setting.rb).
var units = map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "y": 365 * 24 * time.Hour}

var durationRE = regexp.MustCompile(`^(\d{1,9})([smhdy]?)$`)

// The function `interval` reads a duration as Puppet writes it: a number of seconds, or a number with a unit. For any
// other text `interval` returns 0. Puppet does not run with such a text either.
func interval(text string) time.Duration {
	m := durationRE.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // the pattern allows only digits
	return min(time.Duration(n), math.MaxInt64/units[m[2]]) * units[m[2]]
}

// path returns a setting that is a path. The path is below the root.
func (c conf) path(settings map[string]string, name string) (string, error) {
	value, err := resolve(settings, name, 0)
	if err != nil {
		return "", tutti.Wrap(tutti.CodeInvalid, err, "%s: setting %s", c.file, name)
	}
	return filepath.Join(c.root, value), nil
}

// parseConf returns the settings of puppet.conf by section.
func parseConf(text string) map[string]map[string]string {
	found := map[string]map[string]string{}
	section := "main"
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.TrimSpace(line[1 : len(line)-1])
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if found[section] == nil {
			found[section] = map[string]string{}
		}
		found[section][strings.TrimSpace(name)] = plainValue(value)
	}
	return found
}

// fileMode matches the text that Puppet allows after a file name: `{owner = service}`.
var fileMode = regexp.MustCompile(`\s*\{[^}]*\}\s*$`)

func plainValue(value string) string {
	if at := strings.Index(value, " #"); at >= 0 {
		value = value[:at]
	}
	if strings.Contains(value, "{") && !strings.Contains(value, "${") {
		value = fileMode.ReplaceAllString(value, "")
	}
	return strings.Trim(strings.TrimSpace(value), `"'`)
}

// resolve returns the value of a setting. The function replaces the names of other settings in this
// value by their values.
func resolve(settings map[string]string, name string, depth int) (string, error) {
	value, ok := settings[name]
	if !ok || depth > 10 {
		return "", tutti.Errorf(tutti.CodeInvalid, "the agent of Tutti does not know $%s", name)
	}
	var bad error
	value = os.Expand(value, func(of string) string {
		inner, err := resolve(settings, of, depth+1)
		if err != nil {
			bad = err
		}
		return inner
	})
	if bad == nil && !filepath.IsAbs(value) {
		bad = tutti.Errorf(tutti.CodeInvalid, "%q is not an absolute path", value)
	}
	return value, bad
}
