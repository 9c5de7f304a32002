package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
)

type probeKey struct {
	job  tutti.JobID
	step tutti.StepName
}

// probing is a wait step that sends requests to an address.
type probing struct {
	cancel context.CancelFunc
	last   atomic.Pointer[string] // why the last answer was not good; it is nil before the first answer
}

// maxAnswer is the largest number of bytes of an answer that a message quotes.
const maxAnswer = 1000

const (
	probeEvery    = 250 * time.Millisecond
	probeDeadline = 5 * time.Second
)

// checkValueWaits ends the waits for values that are now set as expected.
func (d *decider) checkValueWaits(tx *tx) {
	var done []*tutti.StepFinished
	tx.Engine.Waits(func(j *engine.Job, st *engine.Step) {
		if st.Wait.Value == "" {
			return
		}
		v, found := tx.Data.Value(st.Wait.Value)
		if found && (len(st.Wait.Equals) == 0 || data.Equal(v.Value, st.Wait.Equals)) {
			done = append(done, &tutti.StepFinished{Job: j.ID, Step: st.Name, OK: true})
		}
	})
	for _, b := range done {
		tx.Emit(core.ActorServer, b)
		tx.MayCut()
	}
}

// reconcileProbes starts a probe for every wait that needs one and ends the probes
// of waits that are over.
func (d *decider) reconcileProbes(ctx context.Context, state *fold.State) {
	wanted := map[probeKey]func() probe{}
	state.Engine.Waits(func(j *engine.Job, st *engine.Step) {
		if st.Wait.Value == "" {
			wanted[probeKey{j.ID, st.Name}] = func() probe { return probeOf(j, st) }
		}
	})
	for k, p := range d.probing {
		if _, ok := wanted[k]; !ok {
			p.cancel()
			delete(d.probing, k)
		}
	}
	for k, prepare := range wanted {
		if _, ok := d.probing[k]; ok {
			continue
		}
		question := prepare()
		probeCtx, cancel := context.WithCancel(ctx)
		p := &probing{cancel: cancel}
		d.probing[k] = p
		d.Writer.Go(func() { d.probe(probeCtx, k, question, &p.last) })
	}
}

// lastAnswer returns, for people, the reason why a wait goes on. The text is empty if the reason is unknown.
func (d *decider) lastAnswer(job tutti.JobID, step tutti.StepName) string {
	if p := d.probing[probeKey{job, step}]; p != nil {
		if last := p.last.Load(); last != nil {
			return *last
		}
	}
	return ""
}

// The type `probe` sends one request. A probe returns nil if the wait is over.
type probe func(context.Context) error

// probeOf returns the probe of a wait step. The probe does not refer to the fold.
func probeOf(j *engine.Job, st *engine.Step) probe {
	wait := *st.Wait
	switch {
	case wait.TCP != "":
		return func(ctx context.Context) error { return probeTCP(ctx, wait.TCP) }
	case wait.PuppetDB != "":
		return catalogs{at: wait.PuppetDB, due: catalogsDue(j, st)}.stored
	}
	return func(ctx context.Context) error { return probeHTTP(ctx, wait.HTTP) }
}

// The method `probe` repeats the question until the answer is good. After a good answer, the method ends the
// step. The engine checks the timeout of the step, and reports the last answer.
func (d *decider) probe(ctx context.Context, k probeKey, question probe, last *atomic.Pointer[string]) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		err := once(ctx, question)
		if err == nil {
			err = d.Do(ctx, func(tx *core.Tx) error {
				if j := tx.Engine.Jobs[k.job]; j != nil && !j.Ended() && j.Step(k.step).State == engine.Active {
					tx.Emit(core.ActorServer, &tutti.StepFinished{Job: k.job, Step: k.step, OK: true})
				}
				return nil
			})
			if err != nil {
				d.Opts.Logger.Warn("the end of a wait was not recorded", "job", k.job, "step", k.step, "error", err)
			}
			return
		}
		answer := tutti.Plain(err.Error(), maxAnswer)
		last.Store(&answer)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func once(ctx context.Context, question probe) error {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	err := question(ctx)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // the error without the address, because the step names the address
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("none within %s", probeDeadline)
	}
	return err
}

func probeTCP(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func probeHTTP(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errors.New(resp.Status)
	}
	return nil
}
