package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// siteRequests is large enough that each web server answers at least one request.
const siteRequests = 10

// AskSite sends several requests to the load balancer of the web example. AskSite returns the
// different pages that it got, sorted. The load balancer is the node whose name begins with lb-.
func (f *LabFleet) AskSite(ctx context.Context) ([]string, error) {
	h, err := f.node("lb-")
	if err != nil {
		return nil, err
	}
	var pages []string
	for range siteRequests {
		page, err := getPage(ctx, "http://"+h.Address.String()+"/")
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	slices.Sort(pages)
	return slices.Compact(pages), nil
}

func getPage(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, content)
	}
	return string(content), err
}
