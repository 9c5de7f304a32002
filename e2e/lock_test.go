//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// The script `holder` is a process that takes the lock as Puppet does, and that has the name of a
// Puppet process.
const holder = `#!/usr/bin/ruby
require 'puppet'
require 'puppet/util/pidlock'
lock = Puppet::Util::Pidlock.new(ARGV[0])
abort 'not locked' unless lock.lock
File.write('/run/e2e-locked', '')
sleep 0.05 until File.exist?('/run/e2e-release')
lock.unlock
`

const afterSite = `file { '/run/e2e-after': content => 'applied' }`

// The script selfMade creates a CA and the node's certificate. Without these files `puppet agent` would contact its
// server before it checks the lock.
const selfMade = `
ssl, name = ARGV
def certificate(subject, key, serial, extensions, issuer = subject)
  cert = OpenSSL::X509::Certificate.new
  cert.version, cert.serial, cert.public_key = 2, serial, key.public_key
  cert.subject, cert.issuer = OpenSSL::X509::Name.parse(subject), OpenSSL::X509::Name.parse(issuer)
  cert.not_before, cert.not_after = Time.now - 3600, Time.now + 3600
  extensions.each { |e| cert.add_extension(OpenSSL::X509::ExtensionFactory.new.create_extension(*e)) }
  cert
end
key = { ca: OpenSSL::PKey::RSA.new(2048), node: OpenSSL::PKey::RSA.new(2048) }
ca = certificate('/CN=ca', key[:ca], 1, [%w[basicConstraints CA:TRUE], %w[keyUsage keyCertSign,cRLSign]])
node = certificate("/CN=#{name}", key[:node], 2, [], '/CN=ca')
{ "certs/ca.pem" => ca, "certs/#{name}.pem" => node }.each_value { |c| c.sign(key[:ca], 'SHA256') }
{ "certs/ca.pem" => ca, "certs/#{name}.pem" => node, "private_keys/#{name}.pem" => key[:node] }.each do |path, content|
  FileUtils.mkdir_p(File.dirname("#{ssl}/#{path}"))
  File.write("#{ssl}/#{path}", content.to_pem)
end
`

// The function `clear` removes files of earlier tests, and the lock.
func clear(t *testing.T, h *lab.Host, path string) {
	t.Helper()
	sh(t, h, "mkdir -p $(dirname "+path+"); rm -f /run/e2e-* "+path)
}

// TestLock lets our run meet every other kind of Puppet run that can be on a node.
func TestLock(t *testing.T) {
	push(t, attackFleet, `
		node 'node-01' {`+heldSite+`}
		node default {`+afterSite+`}
	`)
	path := sh(t, host(t, "node-01"), "puppet config print agent_catalog_run_lockfile --section agent")
	t.Run("beside", func(t *testing.T) {
		t.Parallel()
		t.Run("stock agent", stockAgent)
		t.Run("bare apply", bareApply)
	})
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		t.Run("released", func(t *testing.T) { waits(t, path, "touch /run/e2e-release") })
		t.Run("owner killed", func(t *testing.T) { waits(t, path, "systemctl kill --signal=KILL e2e-holder") })
	})
	t.Run("left", func(t *testing.T) {
		t.Parallel()
		t.Run("by a dead process", func(t *testing.T) { ignores(t, path, "sh -c 'echo -n $$' > LOCK") })
		t.Run("empty", func(t *testing.T) { ignores(t, path, ": > LOCK") })
		t.Run("naming a foreign process", func(t *testing.T) { ignores(t, path, "echo -n 1 > LOCK") })
	})
}

// stockAgent starts `puppet agent` in the middle of our apply.
func stockAgent(t *testing.T) {
	h := hold(t, "node-01", "node-01")
	const ssl = "/run/e2e-ssl"
	if _, err := stage.Output(t.Context(), h.host, []byte(selfMade), "ruby", "-ropenssl", "-rfileutils", "-", ssl, "node-01"); err != nil {
		t.Fatal(err)
	}
	later(t, h.host, "rm -r "+ssl)
	out := sh(t, h.host, "puppet agent --onetime --no-daemonize -v --color=false --server nowhere.invalid --certname node-01 "+
		"--certificate_revocation=false $(case $(puppet --version) in 7.*) ;; *) echo --hostcert_renewal_interval=0 ;; esac) --ssldir "+ssl+" 2>&1 || echo exit $?")
	if !strings.Contains(out, "already in progress; skipping") || strings.Contains(out, "nowhere.invalid") {
		t.Errorf("the stock agent did not skip its run: %s", out)
	}
	h.letGo()
	r := h.ended()
	h.expect(r, tutti.Changed, "", "")
	if r.Result.Overlapped {
		t.Error("a Puppet that takes the lock is no overlap")
	}
}

// bareApply starts a person's `puppet apply`, which takes no lock.
func bareApply(t *testing.T) {
	h := hold(t, "node-01", "node-01")
	sh(t, h.host, `systemd-run --quiet --collect --unit=e2e-bare puppet apply -e 'exec { "/bin/sh -c \"touch /run/e2e-bare; while [ ! -e /run/e2e-enough ]; do sleep 0.1; done\"": timeout => 0 }'`)
	later(t, h.host, "touch /run/e2e-enough")
	eventually(t, "the person's Puppet applies", func() bool { return sh(t, h.host, "ls /run/e2e-bare 2>/dev/null || true") != "" })
	eventually(t, "the agent has seen it", func() bool { return sh(t, h.host, "grep -c puppet.apply "+h.file("answers.jsonl")+" || true") != "0" })
	// After a restart the agent still knows about the person's run, although that run has ended.
	sh(t, h.host, "touch /run/e2e-enough; systemctl restart tutti-agent")
	h.letGo()
	r := h.ended()
	h.expect(r, tutti.Changed, "", "")
	if !r.Result.Overlapped {
		t.Error("nobody noted that another Puppet ran beside the run")
	}
}

// The function `waits` tests a run of Tutti that waits for a lock. The argument `end` is the script
// that ends the wait.
func waits(t *testing.T, path, end string) {
	node := host(t, "node-02")
	clear(t, node, path)
	if _, err := stage.Output(t.Context(), node, []byte(holder), "sh", "-c", "cat > /run/e2e-puppet-holder; chmod 755 /run/e2e-puppet-holder"); err != nil {
		t.Fatal(err)
	}
	sh(t, node, "systemd-run --quiet --collect --unit=e2e-holder /run/e2e-puppet-holder "+path)
	eventually(t, "the lock is held", func() bool { return sh(t, node, "ls /run/e2e-locked 2>/dev/null || true") != "" })
	j := start(t, fleet, "node-02", tutti.ModeApply)
	var says string
	j.until(func(w api.Watched) bool {
		if w.Live == nil || w.Live.Phase != "lock" || w.Live.Message == "" {
			return false
		}
		says = w.Live.Message
		return true
	})
	if !strings.Contains(says, "puppet-holder") {
		t.Errorf("phase lock says %q, want who holds it", says)
	}
	if got := sh(t, node, "ls /run/e2e-after 2>/dev/null || true"); got != "" {
		t.Error("our run did not wait")
	}
	sh(t, node, end)
	j.end()
	j.expect(j.last("run-two", "node-02"), tutti.Changed, "", "")
	checkLockFree(t, node, path)
}

// The function `ignores` tests that a run of Tutti ignores a lock file that no Puppet process
// holds.
func ignores(t *testing.T, path, leave string) {
	node := host(t, "node-03")
	clear(t, node, path)
	sh(t, node, strings.ReplaceAll(leave, "LOCK", path))
	j := execute(t, "node-03", tutti.ModeApply)
	j.expect(j.last("run-three", "node-03"), tutti.Changed, "", "")
	checkLockFree(t, node, path)
}

func checkLockFree(t *testing.T, h *lab.Host, path string) {
	t.Helper()
	if got := sh(t, h, "ls "+path+" 2>/dev/null || true"); got != "" {
		t.Errorf("the lock %s is still there after the run", got)
	}
}
