package agent

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// Local is the node's Puppet outside of runs.
type Local interface {
	Status() (tutti.PuppetStatus, error)
	// Enable and Disable report whether they changed anything.
	Enable() (bool, error)
	Disable(message string, force bool) (bool, error)
	Summary() (tutti.RunSummary, error)
	Resource(ctx context.Context, kind, title string) (json.RawMessage, error)
	// Check checks the code in a directory, with temporary files in another one. It compiles nothing.
	Check(ctx context.Context, temporary, dir string) ([]tutti.CodeProblem, error)
	// Served compiles catalogs of nodes for an environment of the Puppet Server on this machine, and stores nothing. It
	// calls `found` once for each node, with a catalog or with the reason why there is none. Secrets are digests with the key.
	Served(ctx context.Context, environment, key string, nodes []tutti.NodeName, found func(n tutti.NodeName, catalog json.RawMessage, failed string) error) error
}

const (
	// remoteQueue and remoteAtOnce bound the number of waiting questions and the number of questions
	// that the agent is answering. A question that starts Puppet takes seconds. If there is no room,
	// the agent does not answer the question, and the server reports the node as silent.
	remoteQueue  = 16
	remoteAtOnce = 8
	maxFacts     = 96 << 10 // bytes in an answer
	maxFactsFile = 16 << 20 // bytes of a run's facts
	factsFile    = "facts.json"
)

// ringRemote accepts a question. It does not block.
func (a *Agent) ringRemote(payload []byte) {
	var q tutti.RemoteRequest
	if a.opts.Local == nil || a.opts.Allow == nil || json.Unmarshal(payload, &q) != nil || q.Request == "" {
		return
	}
	select {
	case a.remote <- q:
	default:
		a.opts.Logger.Warn("a question was dropped: too many questions at once", "action", q.Action)
	}
}

// The method `remotes` answers questions until ctx ends. The method returns after the last answer.
func (a *Agent) remotes(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	slots := make(chan struct{}, remoteAtOnce)
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-a.remote:
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			working.Go(func() {
				defer func() { <-slots }()
				a.reply(ctx, q)
			})
		}
	}
}

// reply answers one question.
func (a *Agent) reply(ctx context.Context, q tutti.RemoteRequest) {
	if q.Wait <= 0 || q.Wait > tutti.MaxRemoteWait {
		q.Wait = tutti.DefaultRemoteWait
	}
	ctx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	out := a.decide(ctx, q)
	raw, err := json.Marshal(out)
	if err == nil && len(raw) > tutti.MaxRemoteReply {
		raw, err = json.Marshal(tutti.RemoteReply{
			Request: q.Request, Verdict: tutti.RemoteFailed, Rule: out.Rule, Message: "the answer is too large: ask for less",
		})
	}
	if err == nil {
		err = a.opts.Bus.Send(wire.OpAnswer, raw)
	}
	if err != nil {
		a.opts.Logger.Warn("a question was not answered", "action", q.Action, "error", err) // the server reports that the node did not answer
	}
}

// The method `decide` asks the policy and does what the policy allows.
func (a *Agent) decide(ctx context.Context, q tutti.RemoteRequest) tutti.RemoteReply {
	out := tutti.RemoteReply{Request: q.Request, Verdict: tutti.RemoteFailed}
	if err := q.Validate(); err != nil {
		out.Message = err.Error()
		return out
	}
	var said *tutti.SignedAction
	if q.Action.Effect() {
		var err error
		if said, err = a.signed(q); err != nil {
			a.opts.Logger.Warn("an action does not have the required signature", "caller", q.Caller, "action", q.Action, "error", err)
			out.Verdict, out.Message, out.Rule = tutti.RemoteRefused, err.Error(), "signature"
			return out
		}
		if said != nil {
			q.Caller = "operator:" + said.Operator
		}
	}
	var allowed bool
	allowed, out.Rule = a.opts.Allow(policy.Question{Caller: q.Caller, Action: q.Action, Facts: a.facts})
	if !allowed {
		a.opts.Logger.Warn("refused by policy", "caller", q.Caller, "action", q.Action, "rule", out.Rule)
		out.Verdict, out.Message = tutti.RemoteRefused, q.Caller+" may not "+string(q.Action)+" here"
		return out
	}
	if err := a.perform(ctx, q, said, &out); err != nil {
		out.Verdict, out.Message, out.RemoteAnswer = tutti.RemoteFailed, err.Error(), tutti.RemoteAnswer{}
		return out
	}
	out.Verdict = tutti.RemoteOK
	return out
}

func (a *Agent) perform(ctx context.Context, q tutti.RemoteRequest, said *tutti.SignedAction, out *tutti.RemoteReply) error {
	switch q.Action {
	case tutti.RemoteStatus: // every reply has the status
	case tutti.RemoteSummary:
		sum, err := a.opts.Local.Summary()
		out.Summary = &sum
		return err
	case tutti.RemoteResource:
		var err error
		out.Resource, err = a.opts.Local.Resource(ctx, q.Type, q.Title)
		return err
	case tutti.RemoteFacts:
		return a.factsFor(q, out)
	case tutti.RemoteDiff:
		var err error
		out.Diff, err = compareJobs(a, q.Jobs)
		return err
	case tutti.RemoteCompare:
		var err error
		out.Served, err = compareServed(ctx, a.opts.Local, *q.Served)
		return err
	case tutti.RemoteCheck:
		var err error
		out.Check, err = checkJob(ctx, a, q.Jobs)
		return err
	case tutti.RemoteEnable, tutti.RemoteDisable:
		if err := a.change(ctx, q, said, out); err != nil {
			return err
		}
	case tutti.RemoteRun:
		var err error
		if out.Message, err = a.mayRun(); err != nil {
			return err
		}
	}
	status, err := a.status()
	out.Status = &status
	return err
}

// status returns Puppet's status. A run of Tutti counts as running even before it has Puppet's lock.
func (a *Agent) status() (tutti.PuppetStatus, error) {
	s, err := a.opts.Local.Status()
	if err != nil {
		return s, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.active != nil && !s.Applying {
		s.Applying, s.Idling = true, false
		if s.Enabled {
			s.Status = "applying a catalog"
			s.Message = "Currently in run " + string(a.active.id) + s.Message[strings.Index(s.Message+";", ";"):]
		}
	}
	return s, nil
}

// The method `change` enables or disables Puppet if the server still wants the change. A doorbell may
// ring late or twice. The agent does a signed action only once, even if the server wants it more
// often.
func (a *Agent) change(ctx context.Context, q tutti.RemoteRequest, said *tutti.SignedAction, out *tutti.RemoteReply) error {
	if job := a.heldBy(); job != "" {
		return tutti.Errorf(tutti.CodeConflict, "held by job %s, which releases the node itself; to end the job, run tutti job cancel %s", job, job)
	}
	if _, err := call[struct{}](ctx, a, wire.OpAct, tutti.RemoteAct{Request: q.Request}); err != nil {
		return err
	}
	if said != nil {
		if err := a.take(said); err != nil {
			return err
		}
	}
	var changed bool
	var err error
	if q.Action == tutti.RemoteEnable {
		changed, err = a.opts.Local.Enable()
	} else {
		changed, err = a.opts.Local.Disable(q.Message, q.Force)
	}
	if err != nil {
		return err
	}
	a.opts.Logger.Info("remote control", "action", q.Action, "caller", q.Caller, "changed", changed, "message", q.Message)
	if !changed {
		out.Message = "already " + string(q.Action) + "d"
	}
	return nil
}

// If no run may begin here now, mayRun returns an error with the words of MCollective's agent. If a
// run may begin but must wait, the result `waits` says for what.
func (a *Agent) mayRun() (waits string, err error) {
	s, err := a.status()
	if err != nil {
		return "", err
	}
	if job := a.heldBy(); job != "" {
		return "waits for the end of job " + string(job) + ", which holds the node", a.trouble()
	}
	switch {
	case !s.Enabled:
		return "", tutti.Errorf(tutti.CodeConflict, "Puppet is disabled: '%s'", s.DisableMessage)
	case s.Applying:
		return "", tutti.Errorf(tutti.CodeConflict, "Puppet is currently applying a catalog, cannot run now")
	}
	return "", a.trouble()
}

// The method `facts` returns the facts of the latest run that collected facts. The method returns
// false if no run has collected facts.
func (a *Agent) facts() (map[string]any, bool) {
	raw, err := a.lastFacts()
	if err != nil {
		return nil, false
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out) == nil && out != nil
}

func (a *Agent) lastFacts() ([]byte, error) {
	dirs, err := a.runDirs()
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Backward(dirs) {
		if hasFile(dir, diffFile) { // the facts of other code
			continue
		}
		raw, err := excerpt.Read(filepath.Join(dir, factsFile), maxFactsFile)
		if err == nil {
			return raw, nil
		}
	}
	return nil, tutti.Errorf(tutti.CodeNotFound, "no run of Tutti has collected facts here yet")
}

// factsFor puts the facts that the question names into the answer.
func (a *Agent) factsFor(q tutti.RemoteRequest, out *tutti.RemoteReply) error {
	raw, err := a.lastFacts()
	if err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "facts of the last run")
	}
	wanted := all
	if len(q.Facts) > 0 {
		wanted = map[string]json.RawMessage{}
		for _, name := range q.Facts {
			if value, ok := all[name]; ok {
				wanted[name] = value
			}
		}
	}
	if out.Facts, err = json.Marshal(wanted); err == nil && len(out.Facts) > maxFacts {
		err = tutti.Errorf(tutti.CodeInvalid, "%d bytes of facts, at most %d: name those that you need", len(out.Facts), maxFacts)
	}
	return err
}
