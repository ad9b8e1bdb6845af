"""The γ-lab: what another number of drafts a round would bring, predicted and measured."""
