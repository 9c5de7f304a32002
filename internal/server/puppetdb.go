package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `catalogs` lists the catalogs for which a wait asks a PuppetDB. A Puppet Server
// puts a catalog into the queue of PuppetDB before the node applies the catalog. But other
// nodes can only collect from a catalog after PuppetDB has stored it.
type catalogs struct {
	at  string // URL of the PuppetDB
	due map[tutti.NodeName]catalog
}

// catalog describes the catalog of one run. The id of the run is the uuid of the transaction.
// PuppetDB keeps only the latest catalog of each node. If PuppetDB has a catalog that was produced
// after the end of the run, this later catalog has replaced the run's catalog.
type catalog struct {
	run tutti.RunID
	end time.Time
}

// catalogsDue returns the catalogs of agent runs in the steps directly before the wait.
// The function leaves out runs without a catalog.
func catalogsDue(j *engine.Job, wait *engine.Step) map[tutti.NodeName]catalog {
	due := map[tutti.NodeName]catalog{}
	for _, name := range wait.After {
		for _, n := range j.Step(name).Nodes {
			if r := n.Last(); r != nil && r.Program == tutti.ProgramAgent && !r.CompiledAt.IsZero() && r.EndedAt.After(due[n.Node].end) {
				due[n.Node] = catalog{run: r.Run, end: r.EndedAt}
			}
		}
	}
	return due
}

// maxMissing is how many nodes a message names at most.
const maxMissing = 10

// maxCatalogs is the largest answer of PuppetDB. The answer has about 200 bytes per node.
const maxCatalogs = 64 << 20

// The method `stored` returns nil if PuppetDB has stored all these catalogs.
func (c catalogs) stored(ctx context.Context) error {
	if len(c.due) == 0 {
		return nil
	}
	var found []struct {
		Node     tutti.NodeName `json:"certname"`
		Run      tutti.RunID    `json:"transaction_uuid"`
		Produced time.Time      `json:"producer_timestamp"`
	}
	if err := c.query(ctx, &found); err != nil {
		return err
	}
	missing := maps.Clone(c.due)
	for _, s := range found {
		if due := c.due[s.Node]; s.Run == due.run || s.Produced.After(due.end) {
			delete(missing, s.Node)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var names []string
	for _, node := range slices.Sorted(maps.Keys(missing)) {
		names = append(names, string(node))
	}
	if more := len(names) - maxMissing; more > 0 {
		names = append(names[:maxMissing], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("the catalogs of %d of %d nodes are not stored yet: %s", len(missing), len(c.due), strings.Join(names, ", "))
}

// The method `query` asks for all nodes in one request of PuppetDB's query API, version 4.
func (c catalogs) query(ctx context.Context, into any) error {
	var names []tutti.NodeName
	for node := range c.due {
		names = append(names, node)
	}
	slices.Sort(names)
	question, err := json.Marshal(map[string]any{"query": []any{
		"extract", []string{"certname", "transaction_uuid", "producer_timestamp"}, []any{"in", "certname", []any{"array", names}},
	}})
	if err != nil {
		return err
	}
	address, err := url.JoinPath(c.at, "pdb/query/v4/catalogs")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(question))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCatalogs)).Decode(into); err != nil {
		return fmt.Errorf("%s, but the content is not an answer of PuppetDB: %w", resp.Status, err)
	}
	return nil
}
