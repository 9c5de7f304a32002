package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const fuzzPlan = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true}]}
plans:
  deploy:
    steps: [{run: db}]
`

// directLine is a Bus that calls a server in the same process.
type directLine struct {
	*servertest.Node
	alter func(op string, reply []byte) []byte
}

func (l directLine) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	reply, err := l.Fleet.Handle(ctx, l.Key, op, payload)
	if err == nil && l.alter != nil {
		reply = l.alter(op, reply)
	}
	return reply, err
}

func (directLine) Send(string, []byte) error         { return nil }
func (directLine) OnRing(func(string, []byte)) error { return nil }
func (directLine) OnConnect(func())                  {}
func (directLine) SetTicket(string)                  {}

// fuzzSocket is the socket of a run that db-01 has claimed.
func fuzzSocket(t *testing.T, alter func(op string, reply []byte) []byte) *socket {
	t.Helper()
	f := servertest.Start(t)
	node := f.Join("db-01")
	f.Push(fuzzPlan)
	for key, value := range map[string]string{"shared/x": "1", "shared/hiera/port": `"5432"`} {
		if err := f.SetValue(servertest.Operator(), key, json.RawMessage(value)); err != nil {
			t.Fatal(err)
		}
	}
	f.Start("deploy", tutti.ModeApply)
	order := node.MustClaim()
	dir := t.TempDir()
	a := New(Options{Dir: dir, Node: "db-01", Bus: directLine{node, alter}, Logger: slog.New(slog.DiscardHandler), Patience: 2 * time.Second})
	b, err := openBook(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return &socket{agent: a, dir: dir, spec: Spec{Order: order, Node: "db-01"}, book: b, logger: a.opts.Logger}
}

// talk sends lines to the socket and returns its answers.
func (s *socket) talk(t *testing.T, said []byte) [][]byte {
	t.Helper()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan struct{})
	go func() {
		defer close(served)
		converse(ctx, theirs, s.answer)
	}()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = ours.Write(said)
	}()
	var out [][]byte
	answers := bufio.NewReader(ours)
	for range bytes.Count(said, []byte("\n")) {
		line, err := answers.ReadBytes('\n')
		if err != nil {
			break
		}
		out = append(out, line)
	}
	<-wrote
	ours.Close()
	<-served
	return out
}

const greeting = `{"op":"hello","run":"RUN","protocol":1,"module":"1.0","puppet":"8.10.0","certname":"db-01","pid":1}` + "\n"

// FuzzSocket: whatever Puppet sends on its socket, each line gets one answer in the
// form of the protocol. Correct questions after that get correct answers.
func FuzzSocket(f *testing.F) {
	said := greeting + `{"op":"hiera"}
{"op":"value","key":"shared/x","at":{"resource":"Class[A]","file":"a.pp","line":3}}
{"op":"value","key":"db/absent"}
{"op":"collect","type":"Database","filter":["or",["=","tag","a"],["!=","port",1]]}
{"op":"published","key":"db/x"}
{"op":"lock_wait","path":"/nowhere","pid":1,"command":"puppet agent"}
{"op":"gate","catalog":{"digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","resources":3},"exports":[{"type":"Database","title":"main","tags":["a"],"parameters":{"port":5432},"sensitive":["pw"],"file":"a.pp","line":3}],"values":["db/x"],"keys":[{"key":"port","found":true,"at":{"file":"a.pp"}},{"key":"other","found":false}],"facts_digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
{"op":"publish","key":"db/x","value":{"a":[1,2.5]}}
{"op":"withdraw","key":"db/x"}
`
	for seed := range uint64(20) {
		f.Add([]byte(said), seed)
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		s := fuzzSocket(t, nil)
		said = bytes.ReplaceAll(said, []byte("RUN"), []byte(s.spec.Order.Run))
		lines := bytes.SplitAfter(said, []byte("\n"))
		lines = lines[:min(len(lines), 30)]
		i := int(seed % uint64(len(lines)))
		if line, whole := bytes.CutSuffix(lines[i], []byte("\n")); whole {
			lines[i] = append(hostile.Mangle(line, seed), '\n')
		}
		said = bytes.Join(lines, nil)
		answers := s.talk(t, said)
		if len(answers) != bytes.Count(said, []byte("\n")) {
			t.Fatalf("%d answers to %d lines", len(answers), bytes.Count(said, []byte("\n")))
		}
		for k, a := range answers {
			checkAnswer(t, lines[k], a)
		}
		checkAfter(t, s)
	})
}

// checkAnswer checks the rules of the run protocol for every answer.
func checkAnswer(t *testing.T, asked, answer []byte) {
	t.Helper()
	var a struct {
		OK       *bool
		Code     tutti.Code
		Error    string
		Found    *bool
		Value    json.RawMessage
		Data     map[string]json.RawMessage
		Exports  []tutti.Export
		Verdict  tutti.GateVerdict
		Degraded *bool
	}
	if err := json.Unmarshal(answer, &a); err != nil || a.OK == nil {
		t.Fatalf("%s is answered with %s: %v", asked, answer, err)
	}
	if !*a.OK {
		if a.Code == "" || a.Error == "" || len(a.Error) > tutti.MaxErrorText {
			t.Errorf("%.200s is refused with %.200s", asked, answer)
		}
		return
	}
	var req request
	if err := json.Unmarshal(asked, &req); err != nil {
		t.Fatalf("%s is no request, and answered with %s", asked, answer)
	}
	good := true
	switch req.Op {
	case "value", "published":
		good = a.Found != nil && *a.Found == (len(a.Value) > 0)
	case "hiera":
		good = a.Data != nil && a.Degraded != nil
	case "collect":
		good = a.Exports != nil && a.Degraded != nil
	case "gate":
		good = a.Verdict == tutti.GateGo || a.Verdict == tutti.GateStop
	}
	if !good {
		t.Errorf("%.200s is answered with %.200s", asked, answer)
	}
}

// checkAfter checks that the socket still serves the run, that the run's book can
// be read, and that its record can be encoded.
func checkAfter(t *testing.T, s *socket) {
	t.Helper()
	asks := greeting + `{"op":"value","key":"shared/x"}` + "\n" + `{"op":"hiera"}` + "\n"
	answers := s.talk(t, bytes.ReplaceAll([]byte(asks), []byte("RUN"), []byte(s.spec.Order.Run)))
	if len(answers) != 3 || !bytes.Contains(answers[1], []byte(`"value":1`)) || !bytes.Contains(answers[2], []byte(`{"port":"5432"}`)) {
		t.Errorf("after that, answers %s", answers)
	}
	again, err := openBook(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	one, err := s.book.record(s.spec)
	if err != nil {
		t.Fatal(err)
	}
	two, err := again.record(s.spec)
	if diff := cmp.Diff(one, two); diff != "" || err != nil {
		t.Errorf("read again the record is another: %v\n%s", err, diff)
	}
}

// FuzzAnswer damages the server's answers. The agent refuses an answer that does
// not fit the question. A damaged answer never means that a value is absent, or
// that the gate lets the run go.
func FuzzAnswer(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, []byte(nil))
	}
	for _, reply := range []string{"", "null", "{}", "[]", `{"found":false}`, `{"found":true}`, `{"verdict":"GO"}`, `{"data":null,"seq":1}`, `{"exports":null,"found":true,"seq":1}`} {
		f.Add(uint64(0), []byte(reply))
	}
	f.Fuzz(func(t *testing.T, seed uint64, instead []byte) {
		said := map[string][]byte{}
		s := fuzzSocket(t, func(op string, reply []byte) []byte {
			if said[op] != nil {
				return reply
			}
			said[op] = hostile.Mangle(reply, seed)
			if seed == 0 {
				said[op] = instead
			}
			return said[op]
		})
		asks := []string{`{"op":"value","key":"shared/x"}`, `{"op":"hiera"}`, `{"op":"collect","type":"Database"}`, `{"op":"gate","exports":[],"values":[],"keys":[]}`}
		all := greeting
		for _, a := range asks {
			all += a + "\n"
		}
		answers := s.talk(t, bytes.ReplaceAll([]byte(all), []byte("RUN"), []byte(s.spec.Order.Run)))
		if len(answers) != len(asks)+1 {
			t.Fatalf("%d answers", len(answers))
		}
		for i, asked := range asks {
			checkAnswer(t, []byte(asked), answers[i+1])
		}
		if bytes.Contains(answers[1], []byte(`"found":false`)) && !bytes.Contains(said[wire.OpAsk], []byte(`"found":false`)) {
			t.Errorf("value: %s, the server said %s", answers[1], said[wire.OpAsk])
		}
		if bytes.Contains(answers[1], []byte(`"found":true`)) && !bytes.Contains(answers[1], []byte(`"value":1}`)) {
			t.Errorf("value: %s, the server said %s", answers[1], said[wire.OpAsk])
		}
		if bytes.Contains(answers[2], []byte(`"ok":true`)) && !bytes.Contains(answers[2], []byte(`{"port":"5432"}`)) && !bytes.Contains(said[wire.OpHiera], []byte(`"data":{}`)) {
			t.Errorf("hiera: %s, the server said %s", answers[2], said[wire.OpHiera])
		}
	})
}
