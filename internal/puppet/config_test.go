package puppet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// rootWith makes a root directory with a Puppet and a puppet.conf.
func rootWith(t *testing.T, place int, conf string) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range []string{places[place].Ruby, places[place].Puppet} {
		write(t, filepath.Join(root, file), "#!/bin/sh\n", 0o755)
	}
	if conf != "" {
		write(t, filepath.Join(root, packaged[place]["confdir"], "puppet.conf"), conf, 0o644)
	}
	return root
}

func write(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// The paths for Debian are the output of `puppet config print --section agent` of Puppet 7.23. The paths for the
// vendor's packages are built into these packages.
func TestReadConfig(t *testing.T) {
	debian := Config{
		DisabledLock: "/var/cache/puppet/state/agent_disabled.lock", RunLock: "/var/cache/puppet/state/agent_catalog_run.lock",
		LastRun: "/var/cache/puppet/public/last_run_summary.yaml", Resources: "/var/cache/puppet/state/resources.txt",
		Classes: "/var/cache/puppet/state/classes.txt", PIDFile: "/run/puppet/agent.pid",
		LastReport: "/var/cache/puppet/state/last_run_report.yaml", Environment: "production",
	}
	vendor := Config{
		DisabledLock: "/opt/puppetlabs/puppet/cache/state/agent_disabled.lock", RunLock: "/opt/puppetlabs/puppet/cache/state/agent_catalog_run.lock",
		LastRun: "/opt/puppetlabs/puppet/public/last_run_summary.yaml", Resources: "/opt/puppetlabs/puppet/cache/state/resources.txt",
		Classes: "/opt/puppetlabs/puppet/cache/state/classes.txt", PIDFile: "/var/run/puppetlabs/agent.pid",
		LastReport: "/opt/puppetlabs/puppet/cache/state/last_run_report.yaml", Environment: "production",
	}
	with := func(c Config, change func(*Config)) Config { change(&c); return c }
	for _, tc := range []struct {
		reason, conf string
		place        int
		want         Config
		err          string
	}{
		{"Debian's defaults", "", 1, debian, ""},
		{"the vendor's defaults", "", 0, vendor, ""},
		{"comments and other sections", "# vardir = /x\n[server]\nvardir = /y\n[main]\nserver = puppet\n", 1, debian, ""},
		{"what other settings are made of", "[main]\nstatedir = /s\nrundir=/r\n", 1, with(debian, func(c *Config) {
			c.DisabledLock, c.RunLock, c.Resources, c.Classes = "/s/agent_disabled.lock", "/s/agent_catalog_run.lock", "/s/resources.txt", "/s/classes.txt"
			c.PIDFile, c.LastReport = "/r/agent.pid", "/s/last_run_report.yaml"
		}), ""},
		{"agent is stronger than main, wherever it stands", "[agent]\nlastrunfile = /a\n[main]\nlastrunfile = /m\n", 1, with(debian, func(c *Config) { c.LastRun = "/a" }), ""},
		{"references, quotes and a file's mode", "[agent]\nclassfile = \"${statedir}/c.txt\"\nlastrunfile = /l.yaml { mode = 640 }\n", 1, with(debian, func(c *Config) {
			c.Classes, c.LastRun = "/var/cache/puppet/state/c.txt", "/l.yaml"
		}), ""},
		{"the environment", "[main]\nenvironment = a\n[agent]\nenvironment = b\nlastrunreport = /l\n", 1, with(debian, func(c *Config) {
			c.Environment, c.LastReport = "b", "/l"
		}), ""},
		{"nothing is guessed", "[agent]\nlastrunfile = $datadir/l\n", 1, Config{}, "setting lastrunfile: the agent of Tutti does not know $datadir"},
		{"nor followed for ever", "[agent]\nvardir = $statedir/..\n", 1, Config{}, "does not know $"},
		{"nor relative", "[agent]\nclassfile = c.txt\n", 1, Config{}, "not an absolute path"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			root := rootWith(t, tc.place, tc.conf)
			got, err := ReadConfig(root)
			if tc.err != "" {
				if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%+v, %v; want %q", got, err, tc.err)
				}
				return
			}
			for _, path := range []*string{&got.DisabledLock, &got.RunLock, &got.LastRun, &got.Resources, &got.Classes, &got.PIDFile, &got.LastReport} {
				*path = strings.TrimPrefix(*path, root)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v, -want +got\n%s", err, diff)
			}
		})
	}
	if _, err := ReadConfig(t.TempDir()); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("no Puppet: %v", err)
	}
}

// TestReportFiles: the expected paths are the output of `puppet config print lastrunreport --section agent` and
// `--section user` of Puppet 7.23.
func TestReportFiles(t *testing.T) {
	const state = "/var/cache/puppet/state/last_run_report.yaml"
	for _, tc := range []struct {
		reason, conf, want string
	}{
		{"the defaults", "", state},
		{"for both programs", "[main]\nlastrunreport = /l\n", "/l"},
		{"for puppet agent", "[agent]\nlastrunreport = /a\n", "/a " + state},
		{"for puppet apply", "[user]\nlastrunreport = /u\n", state + " /u"},
		{"for each", "[user]\nstatedir = /u\n[agent]\nvardir = /v\n[main]\nlastrunreport = $statedir/l\n", "/v/state/l /u/l"},
		{"the same for each", "[user]\nstatedir = /s\n[agent]\nlastrunreport = /s/last_run_report.yaml\n", "/s/last_run_report.yaml"},
		{"for other programs", "[server]\nlastrunreport = /s\n", state},
		{"other settings that nobody can resolve", "[main]\nclassfile = $datadir/l\n", state},
		{"nothing is guessed", "[user]\nlastrunreport = $datadir/l\n", "setting lastrunreport: the agent of Tutti does not know $datadir"},
	} {
		root := rootWith(t, 1, tc.conf)
		files, conf, err := Local{Root: root}.ReportFiles()
		got := strings.ReplaceAll(strings.Join(files, " "), root, "")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, tc.want) || err == nil && conf != filepath.Join(root, "etc/puppet/puppet.conf") {
			t.Errorf("%s: %q, %q, want %q", tc.reason, got, conf, tc.want)
		}
	}
}
