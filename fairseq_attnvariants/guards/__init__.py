"""What keeps files from doing harm, and trainings from losing anything: patches of fairseq, and why each is there."""
