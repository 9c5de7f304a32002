//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

// makeCA makes a CA and its CRL in the present directory, and a certificate of the CA where the host's Puppet has its
// certificate. The certificate has the trusted extension `pp_role: web`.
const makeCA = `
rm -rf /root/site-ca && mkdir /root/site-ca && cd /root/site-ca
exec 2> log
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=Puppet CA: site' -keyout ca.key -out ca.pem
touch index.txt
echo 01 > number
printf '[ca]\ndefault_ca = c\n[c]\ndatabase = index.txt\ncrlnumber = number\ndefault_md = sha256\n' > ca.cnf
openssl ca -gencrl -config ca.cnf -keyfile ca.key -cert ca.pem -crldays 1 -out crl.pem
cert=$(puppet config print hostcert --section agent) key=$(puppet config print hostprivkey --section agent)
test ! -e $cert
mkdir -p ${cert%/*} ${key%/*}
openssl req -new -newkey rsa:2048 -nodes -subj /CN=$(hostname) -keyout $key -out request.pem
echo '1.3.6.1.4.1.34380.1.1.13 = ASN1:UTF8String:web' > extensions
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile extensions -out $cert
echo $cert $key
`

// TestJoinByCertificate lets a machine join with the certificate of its Puppet, and runs it.
func TestJoinByCertificate(t *testing.T) {
	h := host(t, leaver)
	push(t, leavesFleet, "notify { 'hello': }\n")
	ctx := context.WithoutCancel(t.Context())
	leave(t, h)
	files := strings.TrimSpace(sh(t, h, makeCA))
	t.Cleanup(func() {
		if _, err := stage.Output(ctx, h, nil, "sh", "-c", "rm -rf /root/site-ca "+files); err != nil {
			t.Error(err)
		}
		if _, err := fleet.Client.SetJoinCA(ctx, api.SetJoinCA{Remove: true}); err != nil {
			t.Error(err)
		}
		_, _ = stage.Output(ctx, h, nil, hostTutti, "leave", "--yes", "--offline")
		_ = fleet.Client.RemoveNode(ctx, leaver) // the node may have left
		joinAgain(ctx, t, h)                     // the other tests need this node
	})
	view, err := fleet.Client.SetJoinCA(ctx, api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: sh(t, h, "cat /root/site-ca/ca.pem"), CRL: sh(t, h, "cat /root/site-ca/crl.pem")}})
	if err != nil {
		t.Fatal(err)
	}
	join := hostTutti + " join --puppet-certificate --server " + view.Server + " --pin " + string(view.Pin)
	if got := sh(t, h, join+" || echo exit $?"); !strings.Contains(got, "An operator must approve this machine first") || !strings.Contains(got, "exit 10") {
		t.Fatalf("a machine that left the fleet, and wants to join: %s", got)
	}
	// Puppet itself lets the machine join, by the class of the module.
	sh(t, h, hostTutti+" module install /root/site-ca/modules && cp "+hostTutti+" /root/site-ca/tutti")
	class := fmt.Sprintf(`cd /root/site-ca && puppet apply --detailed-exitcodes --modulepath modules -e "class { 'tutti::agent':
		server => '%s', pin => '%s', source => 'file:/root/site-ca/tutti', digest => '$(sha256sum < tutti | cut -d' ' -f1)' }" || echo exit $?`, view.Server, view.Pin)
	if got := sh(t, h, class); !strings.Contains(got, "exit 2") || strings.Contains(got, "Error:") {
		t.Fatalf("a run of Puppet while the machine waits: %s", got)
	}
	if err := fleet.Client.ApproveNode(ctx, api.ApproveNode{Node: leaver}); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, h, class); !strings.Contains(got, "exit 2") || !strings.Contains(got, "Exec[tutti join]") {
		t.Fatalf("the run of Puppet after the approval: %s", got)
	}
	if got := sh(t, h, class); strings.Contains(got, "exit") {
		t.Errorf("the next run of Puppet changes something: %s", got)
	}
	sh(t, h, "systemctl stop tutti-agent")
	if got := sh(t, h, class+"; systemctl is-active tutti-agent"); !strings.Contains(got, "exit 2") {
		t.Errorf("Puppet does not start the agent: %s", got)
	}
	execute(t, "leaver", tutti.ModeApply)
	n, err := fleet.Client.ShowNode(ctx, leaver)
	if err != nil {
		t.Fatal(err)
	}
	if n.Certificate == nil || n.Certificate.Extensions["pp_role"] != "web" {
		t.Errorf("the node's certificate is %+v", n.Certificate)
	}
}
