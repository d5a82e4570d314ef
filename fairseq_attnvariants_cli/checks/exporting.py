"""The demand on ``fairseq-attnvariants export``: the exported model translates like the model in fairseq."""

from fairseq_attnvariants.deploy import missing
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.registry import ConfigurationError

from .demand import demand
from .outcome import Broken, NotApplicable
from .subject import Subject

SENTENCES = 9


@demand
def exported(subject: Subject) -> None:
    """Translate random sources, with a wide beam and a narrow one, if the libraries of export are installed.

    Demand: exported, it translates as fairseq's search does
    Otherwise: fairseq-attnvariants export refuses it, so that it translates in fairseq alone
    """
    if not isinstance(subject.shared, AttentionRNNModel):
        raise NotApplicable("export is for models of this package")
    if why := missing():
        raise NotApplicable(why)
    from fairseq_attnvariants.deploy.loop import export
    from fairseq_attnvariants.deploy.package import end
    from fairseq_attnvariants.deploy.proof import Batch, Search, proved, random_sources

    model = subject.untouched().eval()  # not watched
    model.load_state_dict(subject.shared.state_dict())
    sources = random_sources(model, end(subject.task.source_dictionary), SENTENCES)
    search = Search(beam=4, max_len_b=12)
    try:
        proved(export(model), model, [Batch(sources[::2], search), Batch(sources[1::2], search._replace(beam=1))])
    except ConfigurationError as error:
        raise Broken(str(error)) from error
