package dashboard

import (
	"embed"
	"encoding/json"
	"io"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/web"
	"monotron/megatron/telemetry"
)

// The page; uPlot (MIT, page/uPlot.LICENSE) draws its charts.
//
//go:embed page
var files embed.FS

var layout = web.Page{Folder: files, Styles: []string{"uPlot.min.css", "page.css"},
	Scripts: []string{"uPlot.iife.min.js", "base.js", "charts.js", "overview.js", "details.js", "live.js"}}

// mostRows of training steps are on a page; of longer logs the striking ones (Table.thinned).
const mostRows = 20000

// pageRun is a run as the page's script reads it.
type pageRun struct {
	Name        string                          `json:"name"`
	Note        string                          `json:"note"`
	Thinned     int                             `json:"thinned"` // steps that Steps leaves out
	Steps       [][]telemetry.Number            `json:"steps"`   // a list a field
	Evaluations map[string][][]telemetry.Number `json:"evaluations"`
	State       pageState                       `json:"state"`
	Lanes       *Lanes                          `json:"lanes"`   // nil: no trace
	About       *telemetry.About                `json:"about"`   // nil: not known
	Ongoing     bool                            `json:"ongoing"` // the server's own process trains it
}

// pageState is what the page shows of a run apart from curves.
type pageState struct {
	Summary Summary          `json:"summary"`
	Marks   []Mark           `json:"marks"`
	Latest  Latest           `json:"latest"`
	Written []Written        `json:"written"`
	Notes   string           `json:"notes"`
	Ended   *telemetry.Ended `json:"ended"` // nil: not known, or not yet
}

// pageData is all that the page shows.
type pageData struct {
	Fields      []string     `json:"fields"`
	MostRows    int          `json:"most_rows"` // a page that follows a run asks again when it has twice as many
	Runs        []pageRun    `json:"runs"`
	Differences []Difference `json:"differences"`
	Position    string       `json:"position"` // of each log, as news are asked for
	Written     int64        `json:"written"`  // when, in seconds since 1970
	Writable    bool         `json:"writable"` // PUT notes keeps notes
}

func dataOf(runs []*Run) pageData {
	d := pageData{Differences: Differences(runs), Position: positions(runs).String(), MostRows: mostRows, Written: time.Now().Unix()}
	for _, f := range Fields {
		d.Fields = append(d.Fields, f.Name)
	}
	for _, r := range runs {
		steps := r.Steps.thinned(mostRows / len(runs))
		p := pageRun{Name: r.Name, Note: r.Note, Thinned: r.Steps.Len() - steps.Len(), Steps: steps.numbers(), State: r.state(), Lanes: r.traced.lanes, About: r.About, Ongoing: r.source.Ongoing,
			Evaluations: map[string][][]telemetry.Number{}}
		for split, t := range r.Evaluations {
			p.Evaluations[split] = t.numbers()
		}
		d.Runs = append(d.Runs, p)
	}
	return d
}

func (r *Run) state() pageState {
	return pageState{r.Summary(), append([]Mark{}, r.Marks()...), r.latest, append([]Written{}, r.written...), r.Notes, r.ending()}
}

// WritePage writes a page that needs nothing but a browser.
func WritePage(w io.Writer, runs []*Run) error {
	data := dataOf(runs)
	return writePage(w, &data)
}

// writePage writes the page with data inlined; nil: the page asks its server for it.
func writePage(w io.Writer, data *pageData) error {
	inlined, err := json.Marshal(data) // writes <, > and & as \u003c and so on: no text ends the script element
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	connect := "'none'"
	if data == nil {
		connect = "'self'"
	}
	_, err = w.Write(layout.HTML(connect, map[string]any{"Data": string(inlined), "Licence": layout.Read("uPlot.LICENSE")[0]}))
	return exitcode.With(exitcode.IO, err)
}
