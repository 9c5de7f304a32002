package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
)

func (p *trimming) audit(t *testing.T, in api.ReadAudit) []api.AuditEntry {
	t.Helper()
	var out []api.AuditEntry
	err := p.ReadAudit(t.Context(), in, func(e api.AuditEntry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The method `verified` fails if the chain of the trail has a gap, or does not reach the last event.
func (p *trimming) verified(t *testing.T, trail []api.AuditEntry) audit.Chain {
	t.Helper()
	var c audit.Chain
	for _, e := range trail {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	all := p.log.everything()
	if last := all[len(all)-1]; c.Last != last.Seq || c.Link != last.Link {
		t.Errorf("the trail ends at %d with %s, the log at %d with %s", c.Last, c.Link, last.Seq, last.Link)
	}
	return c
}

// wantTrail verifies the whole trail and the stored part of each entry.
func (p *trimming) wantTrail(t *testing.T) {
	t.Helper()
	p.audit(t, api.ReadAudit{})
	synctest.Wait() // the call may have caused a snapshot
	trail, all := p.audit(t, api.ReadAudit{}), p.log.everything()
	if c := p.verified(t, trail); c.First != 1 || c.Count != len(all) {
		t.Fatalf("the trail has %d entries from %d on, want %d from 1 on", c.Count, c.First, len(all))
	}
	first := p.first(t)
	var acts []uint64
	for i, e := range trail {
		if act := audit.Act(all[i]); act {
			acts = append(acts, e.Seq)
		} else if e.Seq >= first || len(e.Raw) == 0 {
			continue
		}
		raw, err := json.Marshal(tutti.Event{At: all[i].At, By: all[i].By, Body: all[i].Body})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), string(e.Raw)); diff != "" || !audit.Act(all[i]) {
			t.Errorf("entry %d, %s: -was +kept\n%s", e.Seq, all[i].Body.Kind(), diff)
		}
	}
	var got []uint64
	for _, e := range p.audit(t, api.ReadAudit{Acts: true}) {
		got = append(got, e.Seq)
	}
	if diff := cmp.Diff(acts, got); diff != "" {
		t.Errorf("acts: -want +got\n%s", diff)
	}
	after := acts[len(acts)/2]
	if part := p.audit(t, api.ReadAudit{After: after}); uint64(len(part)) != trail[len(trail)-1].Seq-after || part[0].Seq != after+1 {
		t.Errorf("%d entries after %d of %d", len(part), after, len(trail))
	}
}

func TestTheTrailIsWholeWhenTheLogHasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		for range 4 {
			p.jobs(t, 5)
			synctest.Wait()
		}
		if first := p.first(t); first < 100 {
			t.Fatalf("the log begins with event %d of %d: it has not let go", first, len(p.log.all))
		}
		p.wantTrail(t)
		p = p.again(t)
		p.wantTrail(t)
	})
}

func TestATrailIsReadWhileTheLogLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		p.jobs(t, 3)
		synctest.Wait()
		var c audit.Chain
		err := p.ReadAudit(t.Context(), api.ReadAudit{}, func(e api.AuditEntry) error {
			if e.Seq%7 == 0 && e.Seq < 200 {
				p.jobs(t, 2)
				synctest.Wait()
			}
			return c.Add(e)
		})
		if err != nil {
			t.Fatal(err)
		}
		if first := p.first(t); c.First != 1 || c.Last < first {
			t.Errorf("read %d to %d, the log begins with %d now", c.First, c.Last, first)
		}
	})
}

// brokenTrail is a blob store that can lose the segments of the trail. When `gone` is true, the store does not find
// them.
type brokenTrail struct {
	*memory.Blobs
	gone *atomic.Bool
}

func (b brokenTrail) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	content, err := b.Blobs.Get(ctx, digest)
	if b.gone.Load() && strings.HasPrefix(string(content), "\x1f\x8b") {
		return nil, tutti.Errorf(tutti.CodeNotFound, "blob %s is not stored", digest)
	}
	return slices.Clone(content), err
}

func TestATrailThatIsGoneIsNoShortOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		p := startPast(t, func(o *server.Options) { o.Blobs = brokenTrail{memory.NewBlobs(), &gone} })
		p.jobs(t, 10)
		synctest.Wait()
		p.verified(t, p.audit(t, api.ReadAudit{}))
		gone.Store(true)
		err := p.ReadAudit(t.Context(), api.ReadAudit{}, func(e api.AuditEntry) error {
			return fmt.Errorf("read entry %d", e.Seq)
		})
		if tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("read the trail: %v, want an error with code damaged", err)
		}
	})
}
