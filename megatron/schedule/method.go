package schedule

// byMethod cuts as Megatron-DeepSpeed's --pp-partition-method says. What does not
// divide evenly gives the first stages one more, as there.
func (p *splitting) byMethod(chunks int) []int {
	n := p.Stages * chunks
	// What is divided: layers, with embedding and head as two more, or layers alone.
	slots := p.Layers + 2
	if p.Method == ByLayers {
		slots = p.Layers
	}
	if p.Method != ByLayers && p.Method != ByLayersAndEmbeddings && p.Method != Uniform && p.Method != ByParameters {
		p.problem("--pp-partition-method must be %s, %s, %s or %s, not %s", ByLayersAndEmbeddings, ByLayers, Uniform, ByParameters, p.Method)
		return nil
	}
	if n > slots {
		p.problem("--pp-partition-method %s divides %d layers into at most %d parts, but there are %d pipeline stages of %d chunks: use --pipeline-model-parallel-size %d",
			p.Method, p.Layers, slots, p.Stages, chunks, max(1, slots/chunks))
		return nil
	}
	// By weights of the parts, or evenly.
	var counts []int
	switch {
	case p.Method == ByParameters && p.Weights != nil:
		if len(p.Weights) != slots {
			p.problem("--pp-partition-method %s: there are %d weights for %d layers, the embedding and the head", p.Method, len(p.Weights), p.Layers)
			return nil
		}
		counts = balance(p.Weights, n)
	default:
		counts = spread(slots, n)
	}
	// The first and last part hold the embedding and the head, which are not layers.
	if p.Method != ByLayers {
		counts[0]--
		counts[n-1]--
	}
	return counts
}

// spread deals units over n stages, the first ones taking what is left over.
func spread(units, n int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = units / n
		if i < units%n {
			counts[i]++
		}
	}
	return counts
}

// balance cuts a row of weights into n parts of at least one each, so that the
// heaviest part is as light as can be.
func balance(weights []float64, n int) []int {
	low, high := 0.0, 0.0
	for _, w := range weights {
		low, high = max(low, w), high+w
	}
	for range 60 { // halving: to the last bit
		middle := (low + high) / 2
		if len(fill(weights, middle)) <= n {
			high = middle
		} else {
			low = middle
		}
	}
	counts := fill(weights, high)
	for len(counts) < n { // more parts than the lightest cut takes: halve the longest
		longest := 0
		for i, c := range counts {
			if c > counts[longest] {
				longest = i
			}
		}
		half := counts[longest] / 2
		counts = append(counts[:longest+1], counts[longest:]...)
		counts[longest+1], counts[longest] = half, counts[longest]-half
	}
	return counts
}

// fill puts as many weights into each part as it may hold.
func fill(weights []float64, most float64) (counts []int) {
	sum := 0.0
	for _, w := range weights {
		if len(counts) == 0 || sum+w > most {
			counts, sum = append(counts, 0), 0
		}
		counts[len(counts)-1]++
		sum += w
	}
	return counts
}
