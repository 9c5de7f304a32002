package agent_test

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// compilePlan lets db-01 compile for web-01.
const compilePlan = `
fleet: test
mode: agent
groups: {db: {nodes: [db-01]}, web: {nodes: [web-01]}}
grants: [{to: db, compile: true, dangerous: true}, {to: web, exports: [{type: Database, defined: true}]}]
plans: {deploy: {steps: [{run: web}]}}
`

// compiler is an agent with a compile socket for one user, and a run that web-01
// has claimed.
type compiler struct {
	*lab
	web  *servertest.Node
	run  tutti.RunID
	path string
}

func newCompiler(t *testing.T, uid int) compiler {
	t.Helper()
	c := compiler{lab: newLab(t, applies)}
	c.web = c.fleet.Join("web-01")
	if _, err := c.fleet.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(compilePlan)}); err != nil {
		t.Fatal(err)
	}
	c.job()
	c.run = c.web.MustClaim().Run
	c.path = filepath.Join(c.dir, "run", "compile.sock")
	c.begin(uid)
	return c
}

// The method `begin` starts the agent. If an agent is running, the method replaces this agent.
func (c compiler) begin(uid int, change ...func(*agent.Options)) {
	c.kill()
	claims := c.line.count(wire.OpClaim)
	c.start(append(change, func(o *agent.Options) {
		o.Compile = &agent.CompileSocket{Path: c.path, UID: uid, GID: os.Getgid()}
	})...)
	c.line.until(wire.OpClaim, claims+1) // the agent listens before it claims
}

// dial opens a connection. The test closes the connection at its end.
func (c compiler) dial(t *testing.T) (net.Conn, *bufio.Scanner) {
	t.Helper()
	conn, err := net.Dial("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewScanner(conn)
}

// The method `say` sends the hello of a Puppet Server that compiles for a node, then one question.
func (c compiler) say(t *testing.T, name tutti.NodeName, req ask) reply {
	t.Helper()
	conn, lines := c.dial(t)
	hello := exchange(conn, lines, ask{"op": "hello", "protocol": 1, "run": c.run, "certname": name})
	if !hello.OK {
		return hello
	}
	return exchange(conn, lines, req)
}

// The socket serves one user. The agent refuses every other user, even a user whom the mode of
// the file allows to connect.
func TestTheCompileSocketIsForOneUser(t *testing.T) {
	c := newCompiler(t, os.Getuid()+1)
	info, err := os.Stat(c.path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket %v, %v, want mode 0660", info.Mode(), err)
	}
	conn, lines := c.dial(t)
	for _, op := range []string{"hello", "hiera", "hello"} {
		if got := exchange(conn, lines, ask{"op": op, "protocol": 1, "run": c.run, "certname": "web-01"}); got.Code != tutti.CodeRefused {
			t.Errorf("%s: %+v: want refused", op, got)
		}
	}
	if n := c.line.count(wire.OpCompile); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// The compile gets the answers of the node for which it compiles. When the answer to "compiled"
// arrives, the server's disk has everything that the compile has read or exports. A restart of the
// agent changes nothing.
func TestTheAgentOfACompileHost(t *testing.T) {
	c := newCompiler(t, os.Getuid())
	c.set("shared/x", "1")
	c.set("node/web-01/hiera/port", "80")
	value := c.say(t, "web-01", ask{"op": "value", "key": "shared/x"})
	if string(value.Value) != "1" || value.Digest.Validate() != nil {
		t.Errorf("value: %+v", value)
	}
	if got := c.say(t, "web-01", ask{"op": "hiera"}); string(got.Data["port"]) != "80" || len(got.Digests) != 1 {
		t.Errorf("hiera: %+v", got)
	}
	if got := c.say(t, "web-01", ask{"op": "collect", "type": "Database", "filter": nil}); !got.OK || len(got.Exports) != 0 {
		t.Errorf("collect: %+v", got)
	}
	if got := c.say(t, "web-01", ask{"op": "groups"}); !cmp.Equal(got.Groups, []string{"web"}) || got.Digest != tutti.DigestOf([]byte(`["web"]`)) || got.Seq == 0 {
		t.Errorf("groups: %+v", got)
	}
	c.begin(os.Getuid())
	read := tutti.Read{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}, Found: true, Digest: value.Digest, Seq: value.Seq, At: tutti.Place{File: "web.pp", Line: 3}}
	handed := ask{"op": "compiled", "reads": []tutti.Read{read}, "keys": []tutti.KeyRead{{Key: "port", Found: true}}, "exports": []tutti.Export{{Type: "Database", Title: "a"}}}
	if got := c.say(t, "web-01", handed); !got.OK {
		t.Fatalf("compiled: %+v", got)
	}
	var served *tutti.Served
	for _, e := range c.fleet.Events() {
		if b, ok := e.Body.(*tutti.RunAsked); ok && b.Run == c.run {
			served = b.Served
		}
	}
	if served == nil || served.By != "db-01" || served.Count != 1 {
		t.Fatalf("served: %+v", served)
	}
	raw, err := c.fleet.Blobs.Get(t.Context(), served.Record)
	if err != nil || !strings.Contains(string(raw), `"at":{"file":"web.pp","line":3}`) {
		t.Errorf("where it asked is not told: %s, %v", raw, err)
	}
}

// When PuppetDB answers a collect, the Tutti server names the nodes whose catalog PuppetDB lacks,
// and the catalog of each export. The agent refuses an answer that lacks these nodes and catalogs.
func TestACompileThroughPuppetDB(t *testing.T) {
	c := newCompiler(t, os.Getuid())
	collect := ask{"op": "collect", "type": "Database", "filter": nil, "stored": ask{"db-01": ask{"found": true}, "web-02": ask{"catalog_uuid": "x"}}}
	got := c.say(t, "web-01", collect)
	if got.Lags == nil || len(got.Lags) != 0 || got.Digest.Validate() != nil {
		t.Errorf("collect, of who has no grant to export: %+v", got)
	}
	const uuid = "00000000-0000-4000-8000-00000000000a"
	handed := ask{"op": "compiled", "catalog_uuid": uuid, "exports": []tutti.Export{{Type: "Database", Title: "a"}}, "lags": []tutti.Lag{{Node: "db-01"}}}
	if got := c.say(t, "web-01", handed); !got.OK {
		t.Fatalf("compiled: %+v", got)
	}
	said := map[string]bool{}
	for _, e := range c.fleet.Events() {
		switch b := e.Body.(type) {
		case *tutti.RunAsked:
			said["asked"] = b.Served != nil && b.Served.CatalogUUID == uuid && len(b.Served.Lags) == 1
		case *tutti.ExportsSet:
			said["exports"] = b.Node == "web-01" && b.CatalogUUID == uuid
		}
	}
	if diff := cmp.Diff(map[string]bool{"asked": true, "exports": true}, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	c.line.mu.Lock()
	c.line.alter = func(_ string, reply []byte) []byte {
		return bytes.ReplaceAll(reply, []byte(`"lags":`), []byte(`"was":`))
	}
	c.line.mu.Unlock()
	if got := c.say(t, "web-01", collect); got.Code != tutti.CodeInternal {
		t.Errorf("a server of before: %+v", got)
	}
}

// The socket accepts only the operations of a compile. No operation is allowed before hello. If the
// server refuses an operation, the socket also refuses the operation.
func TestWhatTheCompileSocketRefuses(t *testing.T) {
	c := newCompiler(t, os.Getuid())
	for _, tc := range []struct {
		reason string
		name   tutti.NodeName
		req    ask
		want   tutti.Code
	}{
		{"another certname than the run's", "db-01", ask{"op": "hiera"}, tutti.CodeRefused},
		{"values are published by their node", "web-01", ask{"op": "publish", "key": "node/web-01/x", "value": 1}, tutti.CodeInvalid},
		{"the gate is the node's", "web-01", ask{"op": "gate"}, tutti.CodeInvalid},
	} {
		if got := c.say(t, tc.name, tc.req); got.Code != tc.want {
			t.Errorf("%s: %+v, want %s", tc.reason, got, tc.want)
		}
	}
	conn, lines := c.dial(t)
	if got := exchange(conn, lines, ask{"op": "hiera"}); got.Code != tutti.CodeRefused {
		t.Errorf("before hello: %+v", got)
	}
	if got := exchange(conn, lines, ask{"op": "hello", "protocol": 2}); got.Code != tutti.CodeRefused {
		t.Errorf("another protocol: %+v", got)
	}
}

// The agent keeps no last known answers for other nodes. Without the server, a compile
// for another node gets no answer.
func TestACompileWithoutTheServer(t *testing.T) {
	c := newCompiler(t, os.Getuid())
	c.set("shared/x", "1")
	question := ask{"op": "value", "key": "shared/x"}
	if got := c.say(t, "web-01", question); !got.Found {
		t.Fatalf("%+v", got)
	}
	c.begin(os.Getuid(), impatient)
	conn, lines := c.dial(t)
	if got := exchange(conn, lines, ask{"op": "hello", "protocol": 1, "run": c.run, "certname": "web-01"}); !got.OK {
		t.Fatalf("%+v", got)
	}
	c.line.sever()
	got := exchange(conn, lines, question)
	if diff := cmp.Diff(tutti.CodeUnavailable, got.Code); diff != "" || got.OK {
		t.Errorf("-want +got\n%s%+v", diff, got)
	}
}

// If the compile socket cannot be opened, the node still runs.
func TestAnAgentWithoutItsCompileSocket(t *testing.T) {
	l := newLab(t, applies)
	file := filepath.Join(l.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(func(o *agent.Options) {
		o.Compile = &agent.CompileSocket{Path: filepath.Join(file, "compile.sock"), UID: os.Getuid(), GID: os.Getgid()}
	})
	l.line.until(wire.OpClaim, 1)
	if n := l.line.count(wire.OpClaim); n == 0 {
		t.Error("it claims nothing")
	}
}
