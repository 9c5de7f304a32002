package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/deploy"
)

func TestUnitsFitWhereTheyAre(t *testing.T) {
	cases := map[string]struct {
		reason string
		unit   string
		binary string
		args   string
		has    []string
		hasNot string
		code   tutti.Code
	}{
		"default": {"as it is packaged", "tutti-server", "/usr/local/bin/tutti", "server --dir /var/lib/tutti/server",
			[]string{"ExecStart=/usr/local/bin/tutti server --dir /var/lib/tutti/server", "StateDirectory=tutti/server"}, "ReadWritePaths", ""},
		"elsewhere": {"the rest of the file system is read-only for it", "tutti-server", "/opt/tutti/tutti", "server --dir /srv/tutti",
			[]string{"ExecStart=/opt/tutti/tutti server --dir /srv/tutti", "ReadWritePaths=/srv/tutti"}, "StateDirectory=", ""},
		"below var lib": {"another place that systemd would not make", "tutti-server", "/usr/bin/tutti", "server --dir /var/lib/other",
			[]string{"ReadWritePaths=/var/lib/other"}, "StateDirectory=", ""},
		"binary at home": {"ProtectHome hides it", "tutti-server", "/root/tutti/bin/tutti", "server --dir /var/lib/tutti/server", nil, "", tutti.CodeInvalid},
		"data at home":   {"ProtectHome hides it", "tutti-server", "/usr/bin/tutti", "server --dir /home/ada/tutti", nil, "", tutti.CodeInvalid},
		"agent at home":  {"the agent sees all of its machine", "tutti-agent", "/root/bin/tutti", "agent --dir /root/agent", []string{"ExecStart=/root/bin/tutti agent --dir /root/agent"}, "", ""},
		"spaces":         {"systemd would split it", "tutti-agent", "/usr/bin/tutti", "agent --dir /srv/my agent", nil, "", tutti.CodeInvalid},
		"relative":       {"relative to what?", "tutti-agent", "/usr/bin/tutti", "agent --dir agent", nil, "", tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			unit, err := deploy.Units.ReadFile(tc.unit + ".service")
			if err != nil {
				t.Fatal(err)
			}
			got, err := unitFor(string(unit), tc.binary, tc.args)
			if tutti.CodeOf(err) != tc.code {
				t.Fatalf("%s: error %v, want code %q", tc.reason, err, tc.code)
			}
			lines := strings.Split(got, "\n")
			for _, want := range tc.has {
				if !slices.Contains(lines, want) {
					t.Errorf("%s: no line %q in\n%s", tc.reason, want, got)
				}
			}
			if tc.hasNot != "" && strings.Contains(got, tc.hasNot) {
				t.Errorf("%s: %q in\n%s", tc.reason, tc.hasNot, got)
			}
		})
	}
}

// By default, systemd gives up a unit after five failures in ten seconds. Then a disk that is full
// for ten seconds would stop the fleet.
func TestUnitsAreStartedAgainForEver(t *testing.T) {
	for _, name := range []string{"tutti-server.service", "tutti-agent.service"} {
		unit, err := deploy.Units.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"StartLimitIntervalSec=0", "Restart=always"} {
			if !strings.Contains(string(unit), "\n"+want+"\n") {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
}

// TestTheBackupTimer checks the units that `tutti server init --unit` writes, and that packages install. The argument
// list of a process is public, so it may name only directories.
func TestTheBackupTimer(t *testing.T) {
	timer, err := deploy.Units.ReadFile("tutti-backup.timer")
	if err != nil {
		t.Fatal(err)
	}
	service, err := deploy.Units.ReadFile("tutti-backup.service")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := unitFor(string(service), "/usr/bin/tutti", "server backup --dir /srv/tutti")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		unit   string
		has    []string
	}{
		"timer":     {"each day, also after a day on which the machine was off", string(timer), []string{"[Timer]", "OnCalendar=daily", "Persistent=yes", "[Install]", "WantedBy=timers.target"}},
		"packaged":  {"the latest seven stay, and only root reads them", string(service), []string{"Type=oneshot", "ExecStart=/usr/local/bin/tutti server backup --into /var/backups/tutti --keep 7", "UMask=0077"}},
		"elsewhere": {"the server's directory and binary are those of the machine", elsewhere, []string{"ExecStart=/usr/bin/tutti server backup --dir /srv/tutti --into /var/backups/tutti --keep 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(tc.unit, "\n")
			for _, want := range tc.has {
				if !slices.Contains(lines, want) {
					t.Errorf("%s: no line %q in\n%s", tc.reason, want, tc.unit)
				}
			}
			for _, line := range lines {
				if key, _, _ := strings.Cut(line, "="); (strings.HasPrefix(key, "Exec") || strings.HasPrefix(key, "Environment")) && !slices.Contains(tc.has, line) {
					t.Errorf("an unexpected line %q", line)
				}
			}
		})
	}
}
