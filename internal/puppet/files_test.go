package puppet

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// TestFiles checks what Puppet's own files say about runs that Tutti does not start.
func TestFiles(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC)
	for _, tc := range []struct {
		reason, conf, lock string
		want               tutti.PuppetFiles
		err                tutti.Code
	}{
		{"no puppet.conf", "", "", tutti.PuppetFiles{}, ""},
		{"the defaults", "[main]\ncertname = a\n", "", tutti.PuppetFiles{}, ""},
		{"seconds", "[agent]\nruninterval = 900\nenvironment = canary\n", "", tutti.PuppetFiles{Every: 15 * time.Minute, Environment: "canary"}, ""},
		{"a unit, in main", "[main]\nruninterval = 2h\n", "", tutti.PuppetFiles{Every: 2 * time.Hour}, ""},
		{"agent before main", "[main]\nruninterval = 2h\n[agent]\nruninterval = 1d\n", "", tutti.PuppetFiles{Every: 24 * time.Hour}, ""},
		{"the settings of puppet apply", "[user]\nruninterval = 2h\nenvironment = x\n", "", tutti.PuppetFiles{}, ""},
		{"no duration", "[main]\nruninterval = soon\n", "", tutti.PuppetFiles{}, ""},
		{"longer than a duration can be", "[main]\nruninterval = 999999999y\n", "", tutti.PuppetFiles{Every: 292 * 365 * 24 * time.Hour}, ""},
		{"disabled", "", `{"disabled_message":"kernel update"}`,
			tutti.PuppetFiles{Disabled: &tutti.PuppetDisabled{By: me.Username, Message: "kernel update", Since: at}}, ""},
		{"disabled by an empty file", "", " ",
			tutti.PuppetFiles{Disabled: &tutti.PuppetDisabled{By: me.Username, Message: "reason not known: LOCK is not what Puppet writes", Since: at}}, ""},
	} {
		root := rootWith(t, 1, tc.conf)
		lock := filepath.Join(root, "var/cache/puppet/state/agent_disabled.lock")
		if tc.lock != "" {
			write(t, lock, tc.lock, 0o644)
			if err := os.Chtimes(lock, at, at); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Local{Root: root}.Files()
		if got.Disabled != nil {
			got.Disabled.Message = strings.Replace(got.Disabled.Message, lock, "LOCK", 1)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || tutti.CodeOf(err) != tc.err {
			t.Errorf("%s: %v, -want +got\n%s", tc.reason, err, diff)
		}
	}
	if _, err := (Local{Root: t.TempDir()}).Files(); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("without Puppet: %v", err)
	}
}
