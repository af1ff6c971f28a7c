package tests

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are made from the tree")

const drawing = "docs/pictures/architecture.svg"

// Claim (docs/architecture.md): the drawing of folders and their imports is that of this tree.
func TestDrawingIsCurrent(t *testing.T) {
	arrows, err := readArrows()
	if err != nil {
		t.Fatal(err)
	}
	got := draw(boxesOf(arrows))
	path := filepath.Join(repository, drawing)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%s is out of date (%v); go test ./tests -run Drawing -update writes it", drawing, err)
	}
}

// boxOf is the box that a folder is drawn in: two levels of names, one for what rests on nothing.
func boxOf(folder string) string {
	parts := strings.Split(folder, "/")
	switch {
	case folder == "":
		return "main.go"
	case slices.Contains([]string{"dataset", "tokenizer", "tools", "internal"}, parts[0]), len(parts) == 1:
		return parts[0]
	case folder == "megatron/telemetry/dashboard" || folder == "mpu/ranks/devices":
		return folder
	}
	return strings.Join(parts[:2], "/")
}

// boxesOf are the boxes that each box imports, tests left out.
func boxesOf(arrows []arrow) map[string]map[string]bool {
	boxes := map[string]map[string]bool{}
	for _, a := range arrows {
		from, to := boxOf(a.from), boxOf(a.to)
		if a.test || strings.HasPrefix(from, "tests") || strings.HasPrefix(from, "scripts") || strings.HasSuffix(a.to, "devicetest") {
			continue
		}
		for _, b := range []string{from, to} {
			if boxes[b] == nil {
				boxes[b] = map[string]bool{}
			}
		}
		if from != to {
			boxes[from][to] = true
		}
	}
	return boxes
}

// levels are the rows of the drawing, the bottom one first: a box is above all it imports.
// Boxes that import each other in both directions, folder by folder, share a level.
func levels(boxes map[string]map[string]bool) (rows [][]string) {
	level := map[string]int{}
	for range len(boxes) { // the longest path ends by then
		for b, imports := range boxes {
			for to := range imports {
				if !boxes[to][b] {
					level[b] = max(level[b], level[to]+1)
				}
			}
		}
	}
	for b, n := range level {
		for len(rows) <= n {
			rows = append(rows, nil)
		}
		rows[n] = append(rows[n], b)
	}
	for b := range boxes {
		if level[b] == 0 && !slices.Contains(rows[0], b) {
			rows[0] = append(rows[0], b)
		}
	}
	for _, row := range rows {
		sort.Strings(row)
	}
	return rows
}

// reaches reports whether from imports to through another box.
func reaches(boxes map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	for next := range boxes[from] {
		if next != to && !seen[next] {
			seen[next] = true
			if boxes[next][to] || reaches(boxes, next, to, seen) {
				return true
			}
		}
	}
	return false
}

const (
	boxWidth, boxHeight = 178, 26 // px
	gap, rowHeight      = 14, 62
	perRow              = 6
)

// draw is the drawing as SVG: a row for each level, an arrow where an import is not implied
// by others.
func draw(boxes map[string]map[string]bool) string {
	type point struct{ x, y int }
	at := map[string]point{}
	rows := levels(boxes)
	y := 10
	for i := len(rows) - 1; i >= 0; i-- {
		for from := 0; from < len(rows[i]); from += perRow {
			part := rows[i][from:min(len(rows[i]), from+perRow)]
			x := (perRow*(boxWidth+gap) - len(part)*(boxWidth+gap)) / 2
			for j, b := range part {
				at[b] = point{x + gap/2 + j*(boxWidth+gap), y}
			}
			y += rowHeight
		}
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", perRow*(boxWidth+gap), y)
	s.WriteString(`<style>rect{fill:#eef3fb;stroke:#4a6fa5}text{fill:#1c2a3e}path{fill:none;stroke:#8aa0bf;stroke-opacity:.7}` +
		`@media(prefers-color-scheme:dark){rect{fill:#1d2838}text{fill:#dbe6f5}}</style>` + "\n")
	var names []string
	for b := range at {
		names = append(names, b)
	}
	sort.Strings(names)
	for _, from := range names {
		for _, to := range names {
			if !boxes[from][to] || at[from].y >= at[to].y || reaches(boxes, from, to, map[string]bool{from: true}) {
				continue
			}
			a, b := at[from], at[to]
			x1, y1, x2, y2 := a.x+boxWidth/2, a.y+boxHeight, b.x+boxWidth/2, b.y
			fmt.Fprintf(&s, `<path d="M%d %dC%d %d %d %d %d %d"/>`+"\n", x1, y1, x1, y1+22, x2, y2-22, x2, y2)
		}
	}
	for _, b := range names {
		p := at[b]
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%d" height="%d" rx="5"/><text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
			p.x, p.y, boxWidth, boxHeight, p.x+boxWidth/2, p.y+18, b)
	}
	s.WriteString("</svg>\n")
	return s.String()
}
