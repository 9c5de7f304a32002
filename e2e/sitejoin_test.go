//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	node "github.com/tutti-project/tutti/internal/machine"
)

// joinsByCertificate lets a node leave and join again with the certificate that the Puppet Server's own CA has signed.
// Then it revokes another certificate of this CA.
func (s *puppetSite) joinsByCertificate(t *testing.T) {
	trust := func() api.JoinCAView {
		t.Helper()
		dir := strings.TrimSpace(sh(t, s.server, "puppet config print cadir --section server"))
		view, err := s.Client.SetJoinCA(t.Context(), api.SetJoinCA{JoinCASet: tutti.JoinCASet{
			CA: sh(t, s.server, "cat "+dir+"/ca_crt.pem"), CRL: sh(t, s.server, "cat "+dir+"/ca_crl.pem"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	view, h := trust(), s.web[1]
	sh(t, h, hostTutti+" leave --yes")
	join := hostTutti + " join --puppet-certificate --server " + view.Server + " --pin " + string(view.Pin)
	if got := sh(t, h, join+" || echo exit $?"); !strings.Contains(got, "exit 10") {
		t.Fatalf("a machine that left the fleet, and wants to join: %s", got)
	}
	if err := s.Client.ApproveNode(t.Context(), api.ApproveNode{Node: "web-02"}); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, h, join); !strings.Contains(got, "Joined as web-02") {
		t.Fatalf("after the approval: %s", got)
	}
	s.execute(t, "deploy").checkSummary(tutti.VerdictSucceeded, 2, 0)

	lost := node.PuppetIdentity{Server: view.Server, Pin: view.Pin}
	sh(t, s.server, "puppetserver ca generate --certname lost.example.net")
	for file, at := range map[string]*string{"certs": &lost.Certificate, "private_keys": &lost.PrivateKey} {
		*at = filepath.Join(t.TempDir(), file)
		text := sh(t, s.server, "cat $(puppet config print ssldir --section server)/"+file+"/lost.example.net.pem")
		if err := os.WriteFile(*at, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() (string, error) {
		_, pending, err := node.JoinByCertificate(t.Context(), node.JoinOptions{Dir: filepath.Join(t.TempDir(), "agent")}, lost)
		return pending, err
	}
	if pending, err := ask(); !strings.Contains(pending, "no rule") || err != nil {
		t.Fatalf("a certificate that the CA has just signed: pending %q, %v", pending, err)
	}
	sh(t, s.server, "puppetserver ca revoke --certname lost.example.net")
	trust()
	if _, err := ask(); tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a certificate that the CA has revoked: %v", err)
	}
}
