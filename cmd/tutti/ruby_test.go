package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tutti-project/tutti"
)

// fakeRuby plays a launcher and a Puppet. fakeRuby implements the small part of
// docs/run-protocol.md that the tests need. fakeRuby reads a manifests/site.pp with one line for
// each action of a node:
//
//	NODE read KEY            a value, at this line
//	NODE collect TYPE
//	NODE export TYPE TITLE
//	NODE exports TYPE COUNT
//	NODE report BYTES        how long the report is at least
//	NODE compile-error MESSAGE
//	NODE wrong LEVEL MESSAGE    a problem, only for a check of code
//	NODE notify TITLE MESSAGE   a resource, only for a diff
//	NODE secret TITLE MESSAGE   a resource whose message is a secret, only for a diff
//	NODE publish KEY JSON    when it applies
//	NODE hold FILE           until the file is there, when it applies; FILE.waits is there meanwhile
//	NODE fail MESSAGE        a resource
//	NODE owe RESOURCE        one run makes a change without its refresh, the next run only refreshes
//	NODE change RESOURCE PROPERTY OLD NEW [corrective]
//	NODE facts JSON          these are the facts of the run and after it
//	NODE resource TYPE TITLE ENSURE
//	NODE log LEVEL MESSAGE   when it applies; \e in it begins an escape sequence
//
// With * in place of NODE, a line is for every node. The facts of a fake run contain the name of the node. In the role of `puppet resource` the fake
// Ruby knows one user.
func fakeRuby() {
	if len(os.Args) > 2 && os.Args[2] == "resource" {
		fmt.Printf("user:\n  %s:\n    ensure: present\n    uid: 0\n", os.Args[len(os.Args)-1])
		return
	}
	if len(os.Args) > 2 && os.Args[2] == "config" {
		return // the fake has no modules
	}
	if len(os.Args) > 3 && os.Args[2] == "--check" {
		if err := fakeCheck(os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[len(os.Args)-2] == "--facts" {
		return // the fake has no facts that change
	}
	r := &fakeRun{dir: os.Args[len(os.Args)-1], exports: []any{}}
	if err := r.do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(r.exit)
}

// fakeCheck plays puppet-tutti --check.
func fakeCheck(dir string) error {
	const name = "manifests/site.pp"
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	out, number := json.NewEncoder(os.Stdout), 0
	for line := range strings.Lines(string(raw)) {
		number++
		if words := strings.SplitN(strings.TrimSpace(line), " ", 4); len(words) == 4 && words[1] == "wrong" {
			if err := out.Encode(ask{"level": words[2], "file": name, "line": number, "message": words[3]}); err != nil {
				return err
			}
		}
	}
	return nil
}

type fakeRun struct {
	dir   string
	order struct {
		Run             string   `json:"run"`
		Node            string   `json:"node"`
		Mode            string   `json:"mode"`
		Environment     string   `json:"environment"`
		EnvironmentPath string   `json:"environmentpath"`
		Socket          string   `json:"socket"`
		Owed            []string `json:"owed"`
		ENC             bool     `json:"enc"`
		Diff            bool     `json:"diff"`
	}
	site    string
	todo    []statement
	exports []any
	values  []string
	status  map[string]any // status contains the failed and changed resources.
	broken  bool           // a resource has failed
	found   []any          // the answers of all collects
	padding int            // the report has this many additional bytes
	exit    int
}

type statement struct {
	line int
	verb string
	args []string
}

func (r *fakeRun) do() error {
	raw, err := os.ReadFile(filepath.Join(r.dir, "run.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r.order)
	}
	if err != nil {
		return err
	}
	if err := r.began(); err != nil {
		return err
	}
	if err := r.parse(); err != nil {
		return err
	}
	facts, err := r.facts()
	if err != nil {
		return err
	}
	r.phase(ask{"phase": "compile"})
	if r.compile() {
		r.phase(ask{"phase": "done", "exit": 1})
		r.exit = 1
		return nil
	}
	r.phase(ask{"phase": "gate"})
	handed := ask{"op": "gate", "exports": r.exports, "values": r.values, "keys": []any{}, "facts_digest": facts}
	if r.order.Diff {
		if err := r.keepCatalog(handed); err != nil {
			return err
		}
	}
	gate := r.say(handed)
	if gate["error"] != nil { // the error's code is the verdict, as in the module
		gate["verdict"], gate["reason"] = gate["code"], gate["error"]
	}
	r.phase(ask{"phase": "gate", "verdict": gate["verdict"], "reason": gate["reason"]})
	if gate["verdict"] != "go" {
		r.phase(ask{"phase": "done", "exit": 76})
		r.exit = 76
		return nil
	}
	if gate["holds"] == true {
		if err := r.catalog(); err != nil {
			return err
		}
	}
	r.phase(ask{"phase": "apply"})
	r.apply()
	r.phase(ask{"phase": "report"})
	if err := r.report(); err != nil {
		return err
	}
	r.phase(ask{"phase": "done", "exit": r.exit})
	return nil
}

// The method `began` reports the run to the agent, and counts the start for the script.
func (r *fakeRun) began() error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	pid := fmt.Sprintf(`{"pid":%d,"start":%s}`, os.Getpid(), fields[19])
	tmp := filepath.Join(r.dir, "pid.new")
	if err := os.WriteFile(tmp, []byte(pid), 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(r.dir, "pid")); err != nil {
		return err
	}
	starts := filepath.Join(r.dir, "..", "..", "starts")
	return r.add(starts, r.order.Run)
}

func (r *fakeRun) add(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

type ask = map[string]any

func (r *fakeRun) phase(p ask) { r.line("phase.jsonl", p) }

func (r *fakeRun) line(file string, p ask) {
	p["t"] = time.Now().UTC().Format(time.RFC3339Nano)
	raw, err := json.Marshal(p)
	if err == nil {
		err = r.add(filepath.Join(r.dir, file), string(raw))
	}
	if err != nil {
		panic(err)
	}
}

func (r *fakeRun) parse() error {
	r.site = filepath.Join(r.order.EnvironmentPath, r.order.Environment, "manifests/site.pp")
	raw, err := os.ReadFile(r.site)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(raw), "\n") {
		if words := strings.Fields(line); len(words) > 2 && (words[0] == r.order.Node || words[0] == "*") {
			r.todo = append(r.todo, statement{line: i + 1, verb: words[1], args: words[2:]})
		}
	}
	return nil
}

// The method `facts` writes the facts of the run. If the manifest has facts for the node, the method also writes the
// files of a collection after the run, and returns the digest of the facts.
func (r *fakeRun) facts() (digest string, err error) {
	text := fmt.Sprintf(`{"role":%q,"processors":{"count":4}}`, strings.Split(r.order.Node, "-")[0])
	files := map[string]string{}
	for _, s := range r.todo {
		if s.verb == "facts" {
			text = strings.Join(s.args, " ")
			digest = string(tutti.DigestOf([]byte(text)))
			files["facts-held.json"], files["facts-now.json"] = text, fmt.Sprintf(`{"facts":%q}`, digest)
		}
	}
	files["facts.json"] = text
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600))
	}
	return digest, err
}

// The method `catalog` writes the catalog for queries.
func (r *fakeRun) catalog() error {
	resources := []ask{{"type": "Class", "title": "Role::Web", "parameters": ask{"port": 80}}}
	for _, s := range r.todo {
		if s.verb == "resource" {
			resources = append(resources, ask{"type": s.args[0], "title": s.args[1], "file": "manifests/site.pp", "line": s.line,
				"parameters": ask{"ensure": s.args[2]}, "hidden": []string{"password"}})
		}
	}
	raw, err := json.Marshal(ask{"resources": resources})
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "catalog-held.json"), raw, 0o600)
	}
	return err
}

// The method `compile` sends the questions and exports, and reports whether it failed.
func (r *fakeRun) compile() bool {
	r.say(ask{"op": "hiera"})
	if r.order.ENC {
		raw, err := json.Marshal(r.say(ask{"op": "enc"})["answer"])
		if err != nil || r.add(filepath.Join(r.dir, "..", "..", "enc"), string(raw)) != nil {
			return true
		}
	}
	for _, s := range r.todo {
		at := ask{"resource": "Class[main]", "file": r.site, "line": s.line}
		switch s.verb {
		case "read":
			r.say(ask{"op": "value", "key": s.args[0], "at": at})
		case "groups":
			if r.groups(s.args[0], at) != nil {
				return true
			}
		case "collect":
			r.found = append(r.found, r.say(ask{"op": "collect", "type": s.args[0], "filter": nil, "at": at})["exports"])
		case "export":
			r.exports = append(r.exports, ask{"type": s.args[0], "title": s.args[1], "file": r.site, "line": s.line})
		case "exports":
			n, _ := strconv.Atoi(s.args[1])
			for i := range n {
				r.exports = append(r.exports, ask{"type": s.args[0], "title": fmt.Sprint(s.args[0], " ", i), "parameters": ask{"text": strings.Repeat("x", 200)}, "file": r.site, "line": s.line})
			}
		case "report":
			r.padding, _ = strconv.Atoi(s.args[0])
		case "publish":
			r.values = append(r.values, s.args[0])
		case "compile-error":
			r.line("log.jsonl", ask{"level": "err", "message": strings.Join(s.args, " "), "source": "Puppet", "file": r.site, "line": s.line, "pos": len(r.order.Node) + 2})
			return true
		}
	}
	return false
}

// The method `groups` asks for the groups of the node, and adds them to a file in the agent's directory.
func (r *fakeRun) groups(file string, at ask) error {
	raw, err := json.Marshal(r.say(ask{"op": "groups", "at": at})["groups"])
	if err != nil {
		return err
	}
	return r.add(filepath.Join(r.dir, "..", "..", file), string(raw))
}

// keepCatalog writes the catalog of a compile for a diff, and adds its digests to the gate. The resources of the fake are its
// statements `notify` and `secret`, and one resource with the number of exports that it has collected.
func (r *fakeRun) keepCatalog(gate ask) error {
	resources := map[string]any{}
	for _, s := range r.todo {
		switch s.verb {
		case "notify":
			resources["Notify["+s.args[0]+"]"] = ask{"tags": []string{}, "parameters": ask{"message": strings.Join(s.args[1:], " ")}}
		case "secret":
			resources["Notify["+s.args[0]+"]"] = ask{"tags": []string{}, "hidden": ask{"message": fmt.Sprintf("%x", sha256.Sum256([]byte(s.args[1])))}}
		}
	}
	if len(r.found) > 0 {
		count := 0
		for _, found := range r.found {
			all, _ := found.([]any)
			count += len(all)
		}
		resources["Collected[all]"] = ask{"tags": []string{}, "parameters": ask{"count": count}}
	}
	raw, err := json.Marshal(ask{"run": r.order.Run, "resources": resources, "edges": []string{}, "sources": ask{}, "lib": ""})
	if err != nil {
		return err
	}
	sum, err := json.Marshal(resources)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(sum))
	gate["catalog"] = ask{"digest": digest, "sources": digestOfNothing, "lib": digestOfNothing, "resources": len(resources)}
	return errors.Join(err, os.WriteFile(filepath.Join(r.dir, "catalog-diff.json"), raw, 0o600))
}

const digestOfNothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func (r *fakeRun) apply() {
	r.status = map[string]any{}
	for _, s := range r.todo {
		switch s.verb {
		case "publish":
			if r.order.Mode == "apply" {
				r.say(ask{"op": "publish", "key": s.args[0], "value": json.RawMessage(s.args[1])})
			}
		case "hold":
			if err := r.hold(s.args[0]); err != nil {
				panic(err)
			}
		case "owe":
			if err := r.owe(s.args[0]); err != nil {
				panic(err)
			}
		case "fail":
			name := fmt.Sprintf("Exec[%d]", s.line)
			r.broken = true
			r.became(s, name, ask{"failed": true}, ask{"status": "failure", "message": strings.Join(s.args, " ")})
		case "change":
			corrective := len(s.args) > 4
			r.became(s, s.args[0], ask{"changed": true, "out_of_sync": true, "corrective_change": corrective}, ask{
				"property": s.args[1], "previous_value": s.args[2], "desired_value": s.args[3], "status": "success", "corrective_change": corrective,
				"message": fmt.Sprintf("%s changed '%s' to '%s'", s.args[1], s.args[2], s.args[3]),
			})
		case "log":
			message := strings.ReplaceAll(strings.Join(s.args[1:], " "), `\e`, "\x1b")
			r.line("log.jsonl", ask{"level": s.args[0], "message": message, "source": "Puppet", "file": r.site, "line": s.line})
		}
	}
}

// The method `owe` writes the events that the module writes for a resource that Puppet must refresh.
func (r *fakeRun) owe(resource string) error {
	if slices.Contains(r.order.Owed, resource) {
		r.line("events.jsonl", ask{"event": "refreshed", "resource": resource})
		return nil
	}
	r.line("events.jsonl", ask{"event": "change", "resource": "File[/etc/x.conf]", "notifies": []string{resource}})
	r.line("events.jsonl", ask{"event": "done", "resource": "File[/etc/x.conf]", "changed": true})
	events, err := os.Open(filepath.Join(r.dir, "events.jsonl"))
	if err != nil {
		return err
	}
	defer events.Close()
	return events.Sync()
}

// The method `hold` waits until the file exists or the run's directory was removed.
func (r *fakeRun) hold(file string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, dir := range []string{filepath.Dir(file), r.dir} {
		if err := watcher.Add(dir); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file+".waits", nil, 0o600); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		r.testIsOver()
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			return err
		}
	}
}

// The method `became` sets the status of a resource, in the form of Puppet 8's reports.
func (r *fakeRun) became(s statement, name string, what, event ask) {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	event["time"], event["audited"], event["redacted"] = now, false, nil
	st := ask{
		"resource": name, "file": r.site, "line": s.line, "time": now, "evaluation_time": 0.25, "containment_path": []string{"Stage[main]", "Main", name},
		"failed": false, "failed_to_restart": false, "changed": false, "out_of_sync": false, "skipped": false, "corrective_change": false, "events": []any{event},
	}
	maps.Copy(st, what)
	r.status[name] = st
}

func (r *fakeRun) report() error {
	status := "changed"
	r.exit = 2 // the exit code of Puppet with --detailed-exitcodes
	if r.broken {
		status, r.exit = "failed", 6
	}
	raw, err := json.Marshal(ask{"transaction_uuid": r.order.Run, "time": time.Now().UTC().Format(time.RFC3339Nano), "status": status, "resource_statuses": r.status, "report_format": 12,
		"puppet_version": "8.0.0", "environment": r.order.Environment, "configuration_version": time.Now().Unix(), "logs": []any{},
		"metrics": ask{"resources": ask{"name": "resources", "values": []any{[]any{"total", "Total", len(r.status)}}},
			"time": ask{"name": "time", "values": []any{[]any{"config_retrieval", "Config retrieval", 1.5}}}},
		"transaction_completed": true, "noop_pending": r.order.Mode == "noop", "padding": strings.Repeat("x", r.padding)})
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, "report.new")
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(r.dir, "report.json"))
}

// The method `say` sends a request to the agent, and repeats it until the agent answers.
func (r *fakeRun) say(req ask) ask {
	hello := ask{"op": "hello", "run": r.order.Run, "protocol": 1, "module": "fake", "puppet": "8.0.0", "certname": r.order.Node, "pid": os.Getpid()}
	for {
		if answer, err := r.exchange(hello, req); err == nil {
			return answer
		}
		r.testIsOver()
		time.Sleep(20 * time.Millisecond) // the module polls, too, because nothing signals that the agent is back
	}
}

// testIsOver ends a run whose directory was removed, so that no process outlives a test.
func (r *fakeRun) testIsOver() {
	if _, err := os.Stat(r.dir); err != nil {
		os.Exit(1)
	}
}

func (r *fakeRun) exchange(requests ...ask) (ask, error) {
	conn, err := net.Dial("unix", r.order.Socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 16<<20)
	var answer ask
	for _, req := range requests {
		if err := json.NewEncoder(conn).Encode(req); err != nil {
			return nil, err
		}
		if !lines.Scan() {
			return nil, errors.Join(errors.New("the agent is gone"), lines.Err())
		}
		answer = nil
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return nil, err
		}
	}
	return answer, nil
}
