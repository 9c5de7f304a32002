package agent_test

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// recovery is an age key. Nobody has its private half.
const recovery = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// boxes are a node's keys for secrets.
type boxes struct {
	t *testing.T

	mu   sync.Mutex
	keys []*ecdh.PrivateKey // the present key, and older keys
	next *ecdh.PrivateKey
}

func (b *boxes) Keys() []*ecdh.PrivateKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		return slices.Clone(b.keys)
	}
	return slices.Insert(slices.Clone(b.keys), 1, b.next)
}

func (b *boxes) Pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next != nil
}

func (b *boxes) Next() (*ecdh.PrivateKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = servertest.Box(b.t.Name() + strconv.Itoa(len(b.keys)))
	}
	return b.next, nil
}

func (b *boxes) Switch() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.next = append([]*ecdh.PrivateKey{b.next}, b.keys...), nil
	return nil
}

// ownBoxes returns the keys with which db-01 has joined.
func ownBoxes(t *testing.T) *boxes {
	return &boxes{t: t, keys: []*ecdh.PrivateKey{servertest.Box(string(servertest.Key("db-01")))}}
}

func opening(o *agent.Options) {
	o.Boxes = &boxes{keys: []*ecdh.PrivateKey{servertest.Box(string(servertest.Key("db-01")))}}
}

// The function `keeping` returns a lab with secrets.
func keeping(t *testing.T, change ...func(*agent.Options)) *lab {
	t.Helper()
	l := started(t, append([]func(*agent.Options){opening}, change...)...)
	l.fleet.Push(strings.Replace(onePlan, "\ngroups: {", "\nsecrets: {recovery: "+recovery+"}\ngroups: {spare: {joined: true}, ", 1))
	return l
}

// The method `secret` stores a secret for db-01 under a key, with the given id.
func (l *lab) secret(key, id, value string) {
	l.t.Helper()
	to, err := l.fleet.Recipients(servertest.Operator(), []string{"node:db-01"})
	if err != nil {
		l.t.Fatal(err)
	}
	text := tutti.SecretText{Key: key, ID: id + "0123456789abcdef", Value: json.RawMessage(value)}
	batches, err := seal.Batches(tutti.Secret{Key: key, ID: text.ID, For: []string{"node:db-01"}, Recovery: []byte("r")}, text, to.Nodes)
	if err == nil {
		err = l.fleet.SealSecret(servertest.Operator(), tutti.SealSecret{Secret: batches[0]})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// The method `holding` returns the files of the agent that contain a text.
func (l *lab) holding(text string) []string {
	l.t.Helper()
	var found []string
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return found
}

// TestSecretsAreOpenedLast: Puppet gets secrets in clear and marked as secrets, with and without a
// server. The agent stores secrets sealed.
func TestSecretsAreOpenedLast(t *testing.T) {
	l := keeping(t)
	l.secret("shared/pw", "a", `"canary-1"`)
	l.secret("shared/hiera/pw", "b", `["canary-2"]`)
	l.set("shared/hiera/port", "1")
	asks := func(p *puppet, degraded bool) {
		v, h := p.say(ask{"op": "value", "key": "shared/pw"}), p.say(ask{"op": "hiera"})
		if string(v.Value) != `"canary-1"` || v.Secret != true || v.Degraded != degraded {
			t.Errorf("value %+v", v)
		}
		if string(h.Data["pw"]) != `["canary-2"]` || string(h.Data["port"]) != "1" || !cmp.Equal(h.Secret, []any{"pw"}) || h.Degraded != degraded {
			t.Errorf("hiera %+v", h)
		}
	}
	l.inRun(func(p *puppet) { asks(p, false) })
	l.start(opening, impatient)
	l.inRun(func(p *puppet) {
		l.line.sever()
		asks(p, true)
		l.line.mend()
	})
	if found := l.holding("canary-"); len(found) > 0 {
		t.Errorf("in clear in %v", found)
	}
	if found := l.holding("Tutti::Sealed"); len(found) == 0 {
		t.Error("nothing of it is kept: this test sees nothing")
	}
}

// TestSecretsThatAreNotGivenOn: the agent does not pass on a secret in three cases. The module is too
// old to keep secrets, the server has exchanged the secrets, or the node cannot open the secret.
func TestSecretsThatAreNotGivenOn(t *testing.T) {
	alter := func(l *lab, key, id, sealed string) {
		l.line.mu.Lock()
		defer l.line.mu.Unlock()
		l.line.alter = func(op string, reply []byte) []byte {
			var answer wire.Answer
			if op != wire.OpAsk || json.Unmarshal(reply, &answer) != nil {
				return reply
			}
			v, _ := tutti.ParseSealed(answer.Value)
			if key != "" {
				v.Key = key
			}
			if id != "" {
				v.ID = id
				answer.Digest = v.Digest()
			}
			if sealed != "" {
				v.Sealed = []byte(sealed)
			}
			answer.Value = tutti.Secret{ID: v.ID, Key: v.Key}.Value(v.Sealed)
			raw, err := json.Marshal(answer)
			if err != nil {
				l.t.Error(err)
			}
			return raw
		}
	}
	for _, tc := range []struct {
		reason string
		before func(*lab)
		hello  ask
		code   tutti.Code
		says   string
	}{
		{"as it came", func(*lab) {}, nil, "", ""},
		{"an older module", func(*lab) {}, ask{"opens": false}, tutti.CodeRefused, "bring it up to date"},
		{"no key", func(l *lab) { l.start() }, nil, tutti.CodeRefused, "no key to open it"},
		{"another machine's key", func(l *lab) {
			l.start(func(o *agent.Options) { o.Boxes = &boxes{keys: []*ecdh.PrivateKey{servertest.Box("other")}} })
		}, nil, tutti.CodeRefused, "not sealed to this key"},
		{"another key of the data", func(l *lab) { alter(l, "shared/other", "", "") }, nil, tutti.CodeInternal, `with the secret "shared/other"`},
		{"another secret", func(l *lab) { alter(l, "", "b0123456789abcdef", "") }, nil, tutti.CodeRefused, "is another secret"},
		{"rubbish", func(l *lab) { alter(l, "", "", "x") }, nil, tutti.CodeRefused, "not sealed to this key"},
	} {
		l := keeping(t)
		l.secret("shared/pw", "a", `"canary-1"`)
		tc.before(l)
		l.ruby.mu.Lock()
		l.ruby.script = func(p *puppet) tutti.Result {
			conn := p.dial()
			defer conn.Close()
			lines, hello := bufio.NewScanner(conn), p.hello()
			for k, v := range tc.hello {
				hello[k] = v
			}
			exchange(conn, lines, hello)
			got := exchange(conn, lines, ask{"op": "value", "key": "shared/pw"})
			if got.Code != tc.code || !strings.Contains(got.Error, tc.says) || tc.code != "" && got.Value != nil {
				t.Errorf("%s: answer %+v, want code %q and %q", tc.reason, got, tc.code, tc.says)
			}
			return tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
		}
		l.ruby.mu.Unlock()
		l.end(l.job())
		l.kill()
	}
}

// TestOneSecretThatCannotBeOpenedIsItsOwn: if one secret of hiera cannot be opened, lookups of
// other keys still work.
func TestOneSecretThatCannotBeOpenedIsItsOwn(t *testing.T) {
	l := keeping(t)
	l.secret("shared/hiera/pw", "a", `"canary-1"`)
	l.set("shared/hiera/port", "1")
	l.start(func(o *agent.Options) { o.Boxes = &boxes{keys: []*ecdh.PrivateKey{servertest.Box("other")}} })
	l.inRun(func(p *puppet) {
		h := p.say(ask{"op": "hiera"})
		if string(h.Data["port"]) != "1" || h.Data["pw"] != nil || !strings.Contains(h.Closed["pw"], "not sealed to this key") {
			t.Errorf("hiera %+v", h)
		}
	})
}

// TestANodeSealsWhatItPublishes: the node seals a published value once. A new recipient gets a piece of
// the same secret. A changed value becomes another secret.
func TestANodeSealsWhatItPublishes(t *testing.T) {
	l := keeping(t, impatient)
	l.fleet.Join("web-01", "spare")
	var reads []api.SecretView
	publish := func(p *puppet, value string) {
		in := ask{"key": "db/pw", "value": value, "sensitive": true, "for": []string{"group:spare"}}
		in["op"] = "published"
		before := p.say(in)
		in["op"] = "publish"
		if r := p.say(in); !r.OK {
			t.Errorf("publish: %+v", r)
		}
		in["op"] = "published"
		if after := p.say(in); !before.OK || !after.Found || after.Outdated {
			t.Errorf("published: before %+v, after %+v", before, after)
		}
		list, err := l.fleet.ListSecrets(servertest.Operator())
		if err != nil || len(list) != 1 {
			t.Error(list, err)
			return
		}
		reads = append(reads, list[0])
	}
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		p.say(ask{"op": "gate", "values": []string{"db/pw"}})
		publish(p, "canary-1")
		publish(p, "canary-1")
		l.fleet.Join("web-02", "spare")
		publish(p, "canary-1")
		publish(p, "canary-2")
		l.line.sever()
		in := ask{"op": "publish", "key": "db/pw", "value": "canary-3", "sensitive": true, "for": []string{"group:spare"}}
		if r := p.say(in); r.OK || r.Code != tutti.CodeUnavailable {
			t.Errorf("publish while the server is away: %+v", r)
		}
		l.line.mend()
		return changed()
	}
	l.ruby.mu.Unlock()
	l.end(l.job())
	if len(reads) != 4 {
		t.Fatal(reads)
	}
	if reads[0].ID != reads[1].ID || reads[1].ID != reads[2].ID || reads[2].ID == reads[3].ID {
		t.Errorf("ids %s %s %s %s", reads[0].ID, reads[1].ID, reads[2].ID, reads[3].ID)
	}
	if diff := cmp.Diff([]tutti.NodeName{"web-01", "web-02"}, reads[2].Sealed); diff != "" || len(reads[2].Waiting) > 0 || reads[0].Owner != "db-01" {
		t.Errorf("with a newcomer %+v", reads[2])
	}
	if found := l.holding("canary-"); len(found) > 0 {
		t.Errorf("in clear in %v", found)
	}
	if raw, err := json.Marshal(l.fleet.Events()); err != nil || bytes.Contains(raw, []byte("canary-")) || !bytes.Contains(raw, []byte("db/pw")) {
		t.Errorf("the log has it in clear, %v", err)
	}
}

// TestWhatNobodyCanOpenKeepsNoKey: a publisher may seal invalid data to a node. The data stays as it
// is, and the node still rotates its key for all other secrets.
func TestWhatNobodyCanOpenKeepsNoKey(t *testing.T) {
	l, own := newLab(t, nil), ownBoxes(t)
	l.fleet.Push(strings.Replace(onePlan, "\ngroups: {", "\nsecrets: {recovery: "+recovery+"}\ngroups: {", 1))
	l.start(func(o *agent.Options) { o.Boxes, o.ServeLocal = own, true })
	l.secret("shared/pw", "a", `"canary-1"`)
	to, err := l.fleet.Recipients(servertest.Operator(), []string{"node:db-01"})
	if err != nil {
		t.Fatal(err)
	}
	rubbish := tutti.Secret{
		Key: "shared/rubbish", ID: "b0123456789abcdef", For: []string{"node:db-01"}, Recovery: []byte("r"),
		Pieces: []tutti.Piece{{Node: "db-01", Box: tutti.BoxDigest(to.Nodes[0].BoxKey), Sealed: []byte("rubbish")}},
	}
	if err := l.fleet.SealSecret(servertest.Operator(), tutti.SealSecret{Secret: rubbish}); err != nil {
		t.Fatal(err)
	}
	reads := func(when string) {
		t.Helper()
		l.inRun(func(p *puppet) {
			if v := p.say(ask{"op": "value", "key": "shared/pw"}); string(v.Value) != `"canary-1"` {
				t.Errorf("%s: what can be opened is answered as %+v", when, v)
			}
		})
	}
	reads("before") // wait until the agent works
	before := seal.PublicKey(own.Keys()[0])
	if err := agent.AskBox(t.Context(), l.dir); err != nil {
		t.Fatal(err)
	}
	if after := seal.PublicKey(own.Keys()[0]); after == before {
		t.Error("the key is the same")
	}
	reads("after")
}

// TestANodeRotatesItsKey: no secret changes, earlier secrets can still be opened, and nobody has to
// seal again. These rules also hold if the agent ends during the rotation, or if a secret arrives
// during the rotation.
func TestANodeRotatesItsKey(t *testing.T) {
	l, own := newLab(t, nil), ownBoxes(t)
	with := func(o *agent.Options) { o.Boxes, o.ServeLocal = own, true }
	l.fleet.Push(strings.Replace(onePlan, "\ngroups: {", "\nsecrets: {recovery: "+recovery+"}\ngroups: {", 1))
	l.start(with)
	l.secret("shared/pw", "a", `"canary-1"`)
	l.secret("shared/hiera/pw", "b", `"canary-2"`)
	reads := func(when string) {
		t.Helper()
		got := l.inRun(func(p *puppet) {
			v, h := p.say(ask{"op": "value", "key": "shared/pw"}), p.say(ask{"op": "hiera"})
			if string(v.Value) != `"canary-1"` || string(h.Data["pw"]) != `"canary-2"` {
				t.Errorf("%s: value %+v, hiera %+v", when, v, h)
			}
		})
		if got.Outcome != tutti.Changed {
			t.Errorf("%s: %+v", when, got)
		}
	}
	box := func() tutti.Digest {
		t.Helper()
		to, err := l.fleet.Recipients(servertest.Operator(), []string{"node:db-01"})
		if err != nil {
			t.Fatal(err)
		}
		return tutti.BoxDigest(to.Nodes[0].BoxKey)
	}
	is := func(when string) {
		t.Helper()
		if got := tutti.BoxDigest(seal.PublicKey(own.Keys()[0])); box() != got || own.Pending() {
			t.Errorf("%s: the server knows %s, the node has %s", when, box(), got)
		}
		for _, s := range func() []api.SecretView { list, _ := l.fleet.ListSecrets(servertest.Operator()); return list }() {
			if len(s.Waiting) > 0 {
				t.Errorf("%s: %s is not sealed to it", when, s.Key)
			}
		}
	}
	reads("before")
	first := box()
	came := false
	l.line.mu.Lock()
	l.line.alter = func(op string, reply []byte) []byte {
		if op == wire.OpPieces && !came {
			came = true
			l.secret("shared/other", "c", `"canary-3"`)
		}
		return reply
	}
	l.line.mu.Unlock()
	if err := agent.AskBox(t.Context(), l.dir); err != nil {
		t.Fatal(err)
	}
	if is("after"); box() == first {
		t.Error("the key is the same")
	}
	reads("after")

	// Kill the agent before the server gets the next key, and once more before the node gets the
	// server's answer.
	l.kill()
	for _, told := range []bool{false, true} {
		if _, err := own.Next(); err != nil {
			t.Fatal(err)
		}
		if told {
			l.start(with)
			l.line.wait("the next key in use", func() bool { return !own.Pending() })
			l.kill()
			own.mu.Lock()
			own.next, own.keys = own.keys[0], own.keys[1:]
			own.mu.Unlock()
		}
		l.start(with)
		l.line.wait("the next key in use", func() bool { return !own.Pending() })
		is("gone on")
		reads("gone on")
		l.kill()
	}
	l.start(with, impatient)
	l.inRun(func(p *puppet) {
		l.line.sever()
		if v := p.say(ask{"op": "value", "key": "shared/pw"}); string(v.Value) != `"canary-1"` || !v.Degraded {
			t.Errorf("without the server: %+v", v)
		}
		l.line.mend()
	})
	if err := func() error { l.line.sever(); defer l.line.mend(); return agent.AskBox(t.Context(), l.dir) }(); err == nil {
		t.Error("the key was rotated without a server")
	}
}
