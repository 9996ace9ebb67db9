"""Word lists the generated tasks draw from, and the rule that holds examples out."""

from hashlib import blake2b

ADJECTIVES = (  # noqa: SIM905  # a thousand quotes would hide the words
    "red blue green yellow white black brown golden silver purple orange pink grey tiny large small heavy light fast "
    "slow quiet loud old new young ancient modern bright dark warm cold wet dry round square flat sharp smooth rough "
    "soft hard sweet bitter happy sad brave shy clever lazy busy calm wild tame rich poor strong weak simple strange "
    "hidden secret broken wooden iron paper glass stone northern southern eastern western early late empty full"
).split()
NOUNS = (  # noqa: SIM905  # a thousand quotes would hide the words
    "fox bear wolf owl cat dog horse lion tiger rabbit mouse eagle whale shark snake frog bee ant river mountain "
    "forest valley island desert ocean lake bridge tower castle house garden kitchen window table chair lamp clock "
    "mirror door key box bag book letter map picture camera phone radio train ship boat plane car bicycle wagon hammer "
    "saw knife spoon bottle cup plate basket blanket coat hat shoe ring crown sword shield flag drum flute violin "
    "piano apple pear cherry lemon onion carrot bread cheese honey cloud storm star moon planet comet engine robot "
    "wheel rope ladder tent"
).split()
NAMES = (  # noqa: SIM905  # a thousand quotes would hide the words
    "Anna Ben Clara David Emma Felix Greta Henry Ida Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tina Victor Alice Bob "
    "Carol Dan Eva Frank Grace Hugo Iris John Lena Max Nina Oscar Peter Ruth Simon Tom Vera Will"
).split()
CITIES = (  # noqa: SIM905  # a thousand quotes would hide the words
    "Paris London Berlin Rome Madrid Vienna Oslo Dublin Lisbon Prague Warsaw Athens Cairo Tokyo Delhi Lima Boston "
    "Chicago Denver Dallas Sydney Toronto Geneva Zurich Munich Milan Naples Porto Lyon Bergen Kyoto Seoul Havana Quito"
).split()
TOPICS = (  # noqa: SIM905  # a thousand quotes would hide the words
    "France Germany Italy Spain Japan China India Brazil Canada Egypt Norway Poland history physics chemistry biology "
    "music art football chess cooking politics economics philosophy religion medicine astronomy geography poetry "
    "dinosaurs volcanoes vikings pirates robots computers rockets whales elephants trees flowers coffee tea chocolate "
    "bread cheese trains ships planes cars love friendship happiness dreams weather climate oceans mountains deserts "
    "Shakespeare Mozart Einstein Newton Darwin Napoleon Caesar Plato Linux Windows Rust Java JavaScript HTML SQL"
).split()


def held_out(kind: str, content: str, percent: int = 10) -> bool:
    """Whether an example is kept from training, by a hash of its content alone."""
    digest = blake2b(f"{kind}:{content}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % 100 < percent
